"""A line's commands as tree-sitter-bash reads them."""

import re
from collections import Counter
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_DUPLICATE = re.compile(rb"[0-9]*[<>]&\s*[0-9-]")
_STRING_ESCAPE = re.compile(r'\\([$`"\\])')
_WORD_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

Reading = tuple[Counter[tuple[str, ...]], Counter[str]]
"""Commands as their words, and the files that are redirected to or from."""


class SecondParser:
    """Reads lines; None where the parser sees an error or something that is not static."""

    def __init__(self) -> None:
        self._parser = Parser(Language(tree_sitter_bash.language()))

    def read(self, line: str) -> Reading | None:
        """The simple commands and redirections of a line."""
        root = self._parser.parse(line.encode()).root_node
        if root.has_error:
            return None
        commands, files = Counter[tuple[str, ...]](), Counter[str]()
        for node in _nodes(root):
            words = [_text(child) for child in _words(node)]
            static = [word for word in words if word is not None]
            if len(static) != len(words):
                return None
            if node.type == "command" and static:
                commands[tuple(static)] += 1
            elif node.type == "file_redirect" and not _DUPLICATE.match(node.text or b""):
                files.update(static)
        return commands, files


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _words(node: Node) -> Iterator[Node]:
    if node.type == "command":
        for index, child in enumerate(node.children):
            if child.type == "command_name":
                yield from child.children
            elif node.field_name_for_child(index) == "argument":
                yield child
    elif node.type == "file_redirect":
        yield from node.children_by_field_name("destination")


def _text(node: Node) -> str | None:
    text = (node.text or b"").decode()
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        plain = all(child.type in ('"', "string_content") for child in node.children)
        return _STRING_ESCAPE.sub(r"\1", text[1:-1]) if plain else None
    if node.type == "concatenation":
        parts = [_text(child) for child in node.children]
        return None if None in parts else "".join(filter(None, parts))
    return _WORD_ESCAPE.sub(r"\1", text) if node.type in ("word", "number") else None
