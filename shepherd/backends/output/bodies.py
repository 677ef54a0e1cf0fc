"""Bodies between the tags of a call: control tokens, XML, Python's notation, and more."""

import ast
import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from shepherd.backends.output import markers, repair, xml
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog
from shepherd.messages import JsonObject

_XTML_BEGIN = "<|open|>call tool="
_CALL = re.compile(
    r"\s*<\|open\|>call\b(?P<attributes>[^|]*)<\|sep\|>(?P<body>.*?)"
    r"(?:<\|close\|>call<\|sep\|>|\Z|(?=<\|open\|>call\b))\s*",
    re.DOTALL,
)
_PART = re.compile(
    r"\s*<\|open\|>(?P<tag>argument|json)\b(?P<attributes>[^|]*)<\|sep\|>(?P<text>.*?)"
    r"<\|close\|>(?P=tag)<\|sep\|>\s*",
    re.DOTALL,
)
_XTML_ATTRIBUTE = re.compile(r"([\w-]+)=\"([^\"]*)\"")

_JSON_WORDS = {"true": True, "false": False, "null": None}

_Calls = tuple[ParsedCall, ...]

_NAME_ELEMENT = re.compile(r"<(function|name|tool_name)>\s*([^<>\s]+)\s*</\1>\s*")
_ARGUMENTS_ELEMENT = re.compile(r"<(arguments|parameters)>(.*)</\1>\s*", re.DOTALL)
_NAME = re.compile(r"([^\s<>(){}\[\]]+)\s*")
_GEMMA = re.compile(r"call:([^\s{]+)\s*(\{.*\})\s*", re.DOTALL)
_GEMMA_STRING = re.compile(r"(<\|\"\|>|<escape>)(.*?)\1", re.DOTALL)


class CallTokens(NamedTuple):
    """The tokens of one call."""

    begin: str
    separator: str
    end: str


DEEPSEEK = CallTokens("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
KIMI = CallTokens("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
CALL_TOKENS = (DEEPSEEK, KIMI)

_STARTS = ("<function>", "<name>", "<tool_name>", *(t.begin for t in CALL_TOKENS))
_NAME_STARTS = (
    "{}", "functions.{}", "call:{}", "<{}", "<function={}", '<function="{}"', '<function name="{}"',
    '<|open|>call tool="{}"', '<invoke name="{}"', '<｜DSML｜invoke name="{}"',
    "function<｜tool▁sep｜>{}",
)  # fmt: skip


@lru_cache(maxsize=16)
def body_starts(names: tuple[str, ...]) -> markers.MarkerSet:
    """The possible beginnings of a body that is not JSON."""
    return markers.MarkerSet.of(*_STARTS, *(s.format(n) for s in _NAME_STARTS for n in names))


def parse_body(body: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """The calls in `body`; empty if it is something else, None if it is incomplete."""
    body = body.strip()
    if body.startswith(("{", "[")):
        return catalog.from_json_text(body) or parse_pythonic(body, catalog)
    head = body.partition("{")[0]
    for tokens in CALL_TOKENS:
        if tokens.begin in head or tokens.separator in head:
            return _section(body, tokens, catalog, final=scope.final)
    if body.startswith("call:"):
        return _gemma(body, catalog)
    if body.startswith(_XTML_BEGIN):
        return _xtml(body, catalog)
    if body.startswith("<"):
        return _xml(body, catalog, scope)
    name = _NAME.match(body)
    if name is None or body.startswith("(", name.end()):
        return parse_pythonic(body, catalog)
    return _named(name[1], body[name.end() :], catalog, scope)


def _xml(body: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    if xml.FUNCTION.match(body):
        return xml.parse_functions(body, catalog, scope)
    named = _NAME_ELEMENT.match(body)
    if named:
        return _named(named[2], body[named.end() :], catalog, scope)
    return _elements(body, catalog, scope)


def _named(name: str, rest: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """A name, then its arguments: as JSON, or as elements (GLM writes keys and values)."""
    tool = catalog.known(name)
    if tool is None:
        return ()
    wrapped = _ARGUMENTS_ELEMENT.fullmatch(rest)
    rest = wrapped[2].strip() if wrapped else rest
    if rest.startswith("{"):
        return catalog.from_arguments_text(tool, rest)
    children = xml.parse_children(rest, 0, "", catalog.argument_names(tool), scope)
    if children is None:
        return ()
    return None if children.end is None else (catalog.from_texts(tool, children.values),)


def _elements(body: str, catalog: ToolCatalog, scope: xml.Scope) -> _Calls | None:
    """Calls as elements that are named after the tool."""
    calls: _Calls = ()
    while body:
        element = xml.parse_element(body, catalog, scope)
        if element is None:
            return None
        if not element.calls:
            return ()
        calls += element.calls
        body = body[xml.skip_space(body, element.end) :]
    return calls


def _gemma(body: str, catalog: ToolCatalog) -> _Calls:
    """Gemma's format: JSON with bare keys and with a special token as the quote."""
    match = _GEMMA.fullmatch(body)
    if match is None:
        return ()
    text = _GEMMA_STRING.sub(lambda m: json.dumps(m[2], ensure_ascii=False), match[2])
    return catalog.from_arguments_text(match[1], text)


def _section(
    body: str, tokens: CallTokens, catalog: ToolCatalog, *, final: bool
) -> tuple[ParsedCall, ...] | None:
    """The calls of a section; the first token of the first call is optional.

    Empty if one of them is invalid, None if arguments continue after the body.
    """
    head, tail = _patterns(tokens)
    calls: list[ParsedCall] = []
    pos = 0
    while pos < len(body):
        match = head.match(body, pos)
        if match is None:
            return ()
        end = _arguments_end(body, match.end())
        if end is None:
            if not final:
                return None
            closing = body.find(tokens.end, match.end())
            end = closing if closing >= 0 else len(body)
        call = catalog.from_arguments_text(match["name"], body[match.end() : end])
        if not call:
            return ()
        calls += call
        behind = tail.match(body, end)
        pos = behind.end() if behind else end
    return tuple(calls)


@lru_cache(maxsize=4)
def _patterns(tokens: CallTokens) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What stands before the arguments of a call, and what stands behind them."""
    begin, separator, end = map(re.escape, tokens)
    head = (
        rf"\s*(?:{begin})?\s*(?:function\s*{separator})?"  # DeepSeek V3 writes the kind first
        rf"\s*(?P<name>(?:(?!{separator}|{end})[^\s{{}}`])+)\s*(?:{separator})?\s*(?:```\w*\s*)?"
    )
    return re.compile(head), re.compile(rf"\s*(?:```)?\s*(?:{end})?\s*")


def _arguments_end(body: str, pos: int) -> int | None:
    """The end of the JSON object at `pos`; `pos` itself without one, None if it is incomplete."""
    if not body.startswith("{", pos):
        return pos
    stop, end = repair.JsonScanner().scan_to_end(body, pos)
    return end if stop is repair.Stop.CLOSED else None


def _xtml(body: str, catalog: ToolCatalog) -> tuple[ParsedCall, ...]:
    """Kimi K3's calls, elements of control tokens; empty if the body is anything else."""
    calls: list[ParsedCall] = []
    pos = 0
    while pos < len(body):
        match = _CALL.match(body, pos)
        tool = catalog.known(_attributes(match["attributes"]).get("tool", "")) if match else None
        call = _xtml_call(tool, match["body"], catalog) if match and tool else ()
        if match is None or not call:
            return ()
        calls += call
        pos = match.end()
    return tuple(calls)


def _xtml_call(tool: str, body: str, catalog: ToolCatalog) -> tuple[ParsedCall, ...]:
    """The call with the arguments in its elements; empty if there is anything else."""
    arguments: JsonObject = {}
    pos = 0
    while pos < len(body):
        part = _PART.match(body, pos)
        if part is None:
            return () if body[pos:].strip() else (ParsedCall(tool, arguments),)
        if part["tag"] == "json":
            return catalog.from_arguments_text(tool, part["text"])
        attributes = _attributes(part["attributes"])
        arguments[attributes.get("key", "")] = _typed(part["text"], attributes.get("type", ""))
        pos = part.end()
    return (ParsedCall(tool, arguments),)


def _attributes(text: str) -> dict[str, str]:
    """The attributes in `key="path" type="string"`."""
    return {
        result[1]: result[2].replace("&quot;", '"').replace("&amp;", "&")
        for result in _XTML_ATTRIBUTE.finditer(text)
    }


def _typed(text: str, kind: str) -> object:
    """The argument, converted to the type that the model wrote beside it."""
    if kind == "string":
        return text
    try:
        return repair.read_json(text)
    except ValueError:
        return text


def parse_pythonic(text: str, catalog: ToolCatalog) -> tuple[ParsedCall, ...]:
    """The calls in `text`; empty unless it has only calls with literal keyword arguments."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        items = tree.elts if isinstance(tree, ast.List) else [tree]
        calls = [_call(item, catalog) for item in items]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    result = tuple(c for c in calls if c is not None)
    return result if len(result) == len(calls) else ()


def _call(node: ast.expr, catalog: ToolCatalog) -> ParsedCall | None:
    """A call in Python's notation; None if it is anything else."""
    if not isinstance(node, ast.Call) or node.args:
        return None
    name = ast.unparse(node.func)
    tool = catalog.known(name) or catalog.known(name.removesuffix(".call"))
    if tool is None:
        return None
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            return None
        arguments[keyword.arg] = ast.literal_eval(_JsonWords().visit(keyword.value))
    return next(iter(catalog.from_value({"name": tool, "arguments": arguments})), None)


class _JsonWords(ast.NodeTransformer):
    """Replaces `true`, `false` and `null`, which LFM writes inside objects, by their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _JSON_WORDS:
            return ast.copy_location(ast.Constant(_JSON_WORDS[node.id]), node)
        return node
