"""The values of arguments, from the text in which a model wrote them."""

import ast
import json
import re
from html import unescape
from typing import Any

from shepherd.backends.output import repair
from shepherd.backends.output.catalog import as_object_of, from_text, properties
from shepherd.backends.output.notation import KEY, Fields, Language
from shepherd.json_text import as_object
from shepherd.messages import JsonObject

_JSON_WORDS = {"true": True, "false": False, "null": None}
_BARE_STRING = re.compile(r"(?P<quote><\|\"\|>|<escape>)(?P<text>.*?)(?P=quote)", re.DOTALL)
_PYTHON_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


def read(text: str, fields: Fields, kind: str, schema: Any, root: JsonObject) -> Any:
    """The value that a text means; `kind` is the word for its type, if there is one."""
    if fields.types:
        if kind == dict(fields.types)["string"]:
            return text
        try:
            return repair.read_json(text)
        except ValueError:
            return text
    if fields.language is Language.ELEMENTS:
        nested = _nested(text, fields, schema, root)
        if nested is not None:
            return nested
    return from_text(unescape(text) if fields.escaped else text, schema, root)


def trimmed(value: str, fields: Fields, close: str) -> str:
    """The value without the line breaks that belong to the syntax."""
    begin = fields.middle[len(fields.middle.rstrip()) :]
    end = close[: len(close) - len(close.lstrip())]
    has_both = value.startswith("\n") and value.endswith("\n")
    # Models lay such elements out on several lines though the template does not.
    is_named = fields.open.endswith("=") or (has_both and fields.middle == '">')
    if not (begin or end) and is_named and not fields.types:
        begin = end = "\n"
    return value.removeprefix(begin).removesuffix(end)


def from_bare(text: str) -> JsonObject | None:
    """The arguments in Gemma's JSON, with bare keys and a token as the quote; None if broken."""
    with_quotes = _BARE_STRING.sub(
        lambda string: json.dumps(string["text"], ensure_ascii=False), text
    )
    return as_object_of(with_quotes)


def from_python(text: str) -> JsonObject | None:
    """The arguments of a call such as `(zone="UTC")`; None unless all are named literals."""
    try:
        call = ast.parse(f"f{_PYTHON_STRING.sub(_on_one_line, text)}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {
            keyword.arg or "": ast.literal_eval(_JsonWords().visit(keyword.value))
            for keyword in call.keywords
        }
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _on_one_line(string: re.Match[str]) -> str:
    """A string with its line breaks escaped, which some models write as they are."""
    return string[0].replace("\n", "\\n").replace("\r", "\\r")


class _JsonWords(ast.NodeTransformer):
    """Replaces `true`, `false` and `null`, which LFM writes inside objects, by their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The value of a word of JSON; other names stay, and are no literals."""
        if node.id in _JSON_WORDS:
            return ast.copy_location(ast.Constant(_JSON_WORDS[node.id]), node)
        return node


def _nested(text: str, fields: Fields, schema: Any, root: JsonObject) -> Any:
    """The object or the list that consists of elements; None if the text is anything else."""
    node = as_object(schema)
    known = properties(node)
    opening = re.compile(rf"\s*{re.escape(fields.open)}(?P<key>[\w.-]+){re.escape(fields.middle)}")
    elements: list[tuple[str, Any]] = []
    pos = 0
    while match := opening.match(text, pos):
        key = match["key"]
        end = _closing(text, match.end(), match[0].strip(), fields.close.replace(KEY, key).strip())
        if end is None:
            return None
        inner = text[match.end() : end[0]]
        own = known.get(key, node.get("items"))
        value = _nested(inner, fields, own, root)
        elements.append((key, _leaf(inner, own, root) if value is None else value))
        pos = end[1]
    if not elements or text[pos:].strip():
        return None
    is_list = all(key == fields.item for key, _ in elements) and fields.item not in known
    return [value for _, value in elements] if is_list else dict(elements)


def _leaf(text: str, schema: Any, root: JsonObject) -> Any:
    """A value inside another one: as its schema says, or what it looks like."""
    if schema is not None:
        return from_text(text, schema, root)
    try:
        return repair.loads(text)
    except ValueError:
        return text


def _closing(text: str, pos: int, opening: str, closing: str) -> tuple[int, int] | None:
    """Where the closing text of an element begins and ends; others like it may be inside."""
    depth = 1
    while True:
        end = text.find(closing, pos)
        if end < 0:
            return None
        depth += text.count(opening, pos, end) - 1
        pos = end + len(closing)
        if not depth:
            return end, pos
