"""Bodies between the tags of a call: control tokens, XML, Python's notation, and more."""

import ast
import json
import re
from functools import lru_cache
from typing import NamedTuple

from shepherd.backends.output import markers, repair, xml
from shepherd.backends.output.catalog import ParsedCall, ToolCatalog, all_or_none
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

_NAME_ELEMENT = re.compile(
    r"<(?P<tag>function|name|tool_name)>\s*(?P<name>[^<>\s]+)\s*</(?P=tag)>\s*"
)
_ARGUMENTS_ELEMENT = re.compile(
    r"<(?P<tag>arguments|parameters)>(?P<text>.*)</(?P=tag)>\s*", re.DOTALL
)
_NAME = re.compile(r"([^\s<>(){}\[\]]+)\s*")
_GEMMA = re.compile(r"call:(?P<name>[^\s{]+)\s*(?P<arguments>\{.*\})\s*", re.DOTALL)
_GEMMA_STRING = re.compile(r"(?P<quote><\|\"\|>|<escape>)(?P<text>.*?)(?P=quote)", re.DOTALL)


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
    if body.startswith(("{", "[")):  # `[` may also begin a list of calls as in Python
        return catalog.from_json_text(body) or parse_pythonic(body, catalog)
    before_json = body.partition("{")[0]
    for tokens in CALL_TOKENS:
        if tokens.begin in before_json or tokens.separator in before_json:
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


def _section(body: str, tokens: CallTokens, catalog: ToolCatalog, *, final: bool) -> _Calls | None:
    """The calls of a section; the first token of the first call is optional.

    Empty if one of them is invalid, None if arguments continue after the body.
    """
    head_pattern, tail_pattern = _patterns(tokens)
    calls: _Calls = ()
    pos = 0
    while pos < len(body):
        head = head_pattern.match(body, pos)
        if head is None:
            return ()
        end = _arguments_end(body, head.end())
        if end is None:
            if not final:
                return None
            # No more text comes: take the incomplete JSON, which may still be repaired.
            closing = body.find(tokens.end, head.end())
            end = closing if closing >= 0 else len(body)
        call = catalog.from_arguments_text(head["name"], body[head.end() : end])
        if not call:
            return ()
        calls += call
        tail = tail_pattern.match(body, end)
        pos = tail.end() if tail else end
    return calls


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


def _xtml(body: str, catalog: ToolCatalog) -> _Calls:
    """Kimi K3's calls, elements of control tokens; empty if the body is anything else."""
    calls: _Calls = ()
    pos = 0
    while pos < len(body):
        element = _CALL.match(body, pos)
        if element is None:
            return ()
        tool = catalog.known(_attributes(element["attributes"]).get("tool", ""))
        call = _xtml_call(tool, element["body"], catalog) if tool else ()
        if not call:
            return ()
        calls += call
        pos = element.end()
    return calls


def _xtml_call(tool: str, body: str, catalog: ToolCatalog) -> _Calls:
    """The call with the arguments in its elements; empty if there is anything else."""
    arguments: JsonObject = {}
    pos = 0
    while pos < len(body):
        element = _PART.match(body, pos)
        if element is None:
            return () if body[pos:].strip() else (ParsedCall(tool, arguments),)
        if element["tag"] == "json":  # all arguments in one element
            return catalog.from_arguments_text(tool, element["text"])
        attributes = _attributes(element["attributes"])
        value = _typed(element["text"], attributes.get("type", ""))
        arguments[attributes.get("key", "")] = value
        pos = element.end()
    return (ParsedCall(tool, arguments),)


def _attributes(text: str) -> dict[str, str]:
    """The attributes in `key="path" type="string"`."""
    return {
        key: value.replace("&quot;", '"').replace("&amp;", "&")
        for key, value in _XTML_ATTRIBUTE.findall(text)
    }


def _typed(text: str, type_name: str) -> object:
    """The argument, converted to the type that the model wrote beside it."""
    if type_name == "string":
        return text
    try:
        return repair.read_json(text)
    except ValueError:
        return text


def parse_pythonic(text: str, catalog: ToolCatalog) -> _Calls:
    """The calls in `text`; empty unless it has only calls with literal keyword arguments."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        items = tree.elts if isinstance(tree, ast.List) else [tree]
        return all_or_none(_pythonic_call(item, catalog) for item in items)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()


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
