"""Bodies between the tags of a call: control tokens, XML, Python's notation, and more."""

import ast
import json
import re
from functools import lru_cache

from shepherd.backends.output import known, markers, xml
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog, all_or_none
from shepherd.messages import JsonObject

_JSON_WORDS = {"true": True, "false": False, "null": None}

_Calls = tuple[ParsedCall, ...]

_NAME_ELEMENT = re.compile(
    r"<(?P<tag>function|name|tool_name)>\s*(?P<name>[^<>\s]+)\s*</(?P=tag)>\s*"
)
_ARGUMENTS_ELEMENT = re.compile(
    r"<(?P<tag>arguments|parameters)>(?P<text>.*)</(?P=tag)>\s*", re.DOTALL
)
_NAME = re.compile(r"([^\s<>(){}\[\]]+)\s*")
_GEMMA = re.compile(r"call:(?P<name>[^\s{]+)\s*(?P<arguments>\{.*\})\s*", re.DOTALL)
_GEMMA_STRING = re.compile(r"(?P<quote><\|\"\|>|<escape>)(?P<text>.*?)(?P=quote)", re.DOTALL)
_FENCED = re.compile(r"```\w*\n(?P<text>.*?)\s*```", re.DOTALL)
_PYTHON_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


_STARTS = ("<function>", "<name>", "<tool_name>")
_NAME_STARTS = (
    "{}", "functions.{}", "call:{}", "<{}", "<function={}", '<function="{}"', '<function name="{}"',
    '<invoke name="{}"', *(f'<{space}invoke name="{{}}"' for space in known.SPACES),
)  # fmt: skip


@lru_cache(maxsize=16)
def body_starts(names: tuple[str, ...]) -> markers.MarkerSet:
    """The possible beginnings of a body that is not JSON."""
    return markers.MarkerSet.of(*_STARTS, *(s.format(n) for s in _NAME_STARTS for n in names))


def parse_body(body: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """The calls in `body`; empty if it is something else, None if it is incomplete."""
    body = body.strip()
    fenced = _FENCED.fullmatch(body)
    body = fenced["text"] if fenced else body
    if body.startswith(("{", "[")):  # `[` may also begin a list of calls as in Python
        return catalog.from_json_text(body) or parse_pythonic(body, catalog)
    if body.startswith("call:"):
        return _gemma(body, catalog)
    if body.startswith("<"):
        return _xml(body, catalog, scope)
    name = _NAME.match(body)
    if name is None or body.startswith("(", name.end()):
        return parse_pythonic(body, catalog)
    return _named(name[1], body[name.end() :], catalog, scope)


def _xml(body: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """Calls as `<function=now>…`, `<name>now</name>…` or `<now>…`."""
    name_element = _NAME_ELEMENT.match(body)
    if name_element:
        return _named(name_element["name"], body[name_element.end() :], catalog, scope)
    return xml.parse_elements(body, catalog, scope)


def _named(name: str, rest: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """A name, then its arguments: as JSON, or as elements (GLM writes keys and values)."""
    tool = catalog.known(name)
    if tool is None:
        return ()
    wrapper = _ARGUMENTS_ELEMENT.fullmatch(rest)
    arguments = wrapper["text"].strip() if wrapper else rest
    if arguments.startswith("{"):
        return catalog.from_arguments_text(tool, arguments)
    keys = catalog.argument_names(tool)
    children = xml.parse_children(arguments, pos=0, closing="", keys=keys, scope=scope)
    if children is None:
        return ()
    return None if children.end is None else (catalog.from_texts(tool, children.values),)


def _gemma(body: str, catalog: ToolCatalog) -> _Calls:
    """Gemma's format: JSON with bare keys and with a special token as the quote."""
    match = _GEMMA.fullmatch(body)
    if match is None:
        return ()
    with_json_strings = _GEMMA_STRING.sub(
        lambda string: json.dumps(string["text"], ensure_ascii=False), match["arguments"]
    )
    return catalog.from_arguments_text(match["name"], with_json_strings)


def parse_pythonic(text: str, catalog: ToolCatalog) -> _Calls:
    """The calls in `text`; empty unless it has only calls with literal keyword arguments."""
    try:
        lines = ast.parse(_PYTHON_STRING.sub(_on_one_line, text.strip())).body
        trees = [line.value for line in lines if isinstance(line, ast.Expr)]
        if len(trees) != len(lines):
            return ()
        items = [i for tree in trees for i in (tree.elts if isinstance(tree, ast.List) else [tree])]
        return all_or_none(_pythonic_call(item, catalog) for item in items)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()


def _on_one_line(string: re.Match[str]) -> str:
    """A string with its line breaks escaped, which some models write as they are."""
    return string[0].replace("\n", "\\n").replace("\r", "\\r")


def _pythonic_call(node: ast.expr, catalog: ToolCatalog) -> ParsedCall | None:
    """A call such as `now(zone="UTC")`; None if it is anything else.

    Raises ValueError if an argument is not a literal.
    """
    if not isinstance(node, ast.Call) or node.args:
        return None
    name = ast.unparse(node.func)
    tool = catalog.known(name) or catalog.known(name.removesuffix(".call"))
    if tool is None:
        return None
    arguments: JsonObject = {}
    for keyword in node.keywords:
        if keyword.arg is None:  # `**more`
            return None
        arguments[keyword.arg] = ast.literal_eval(_JsonWords().visit(keyword.value))
    return ParsedCall(tool, arguments)


class _JsonWords(ast.NodeTransformer):
    """Replaces `true`, `false` and `null`, which LFM writes inside objects, by their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The value of a word of JSON; other names stay, and are no literals."""
        if node.id in _JSON_WORDS:
            return ast.copy_location(ast.Constant(_JSON_WORDS[node.id]), node)
        return node
