"""Calls of DeepSeek and Kimi, which use control tokens."""

import re
from functools import lru_cache
from typing import NamedTuple

from shepherd.backends.output.calls.catalog import ParsedCall, ToolCatalog
from shepherd.backends.output.calls.repair import JsonScanner, Stop, loads, repair_json
from shepherd.messages import JsonObject

BEGIN = "<|open|>call tool="
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
_ATTRIBUTE = re.compile(r"([\w-]+)=\"([^\"]*)\"")
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"))


class CallTokens(NamedTuple):
    """The tokens of one call."""

    begin: str
    separator: str
    end: str


DEEPSEEK = CallTokens("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
KIMI = CallTokens("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
CALL_TOKENS = (DEEPSEEK, KIMI)


def parse_section(
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
        if end is None and not final:
            return None
        if end is None:
            end = body.find(tokens.end, match.end())
            end = end if end >= 0 else len(body)
        call = catalog.from_arguments_text(match["name"], body[match.end() : end])
        if not call:
            return ()
        calls += call
        behind = tail.match(body, end)
        pos = behind.end() if behind else end
    return tuple(calls)


@lru_cache(maxsize=4)
def _patterns(tokens: CallTokens) -> tuple[re.Pattern[str], re.Pattern[str]]:
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
    scanner = JsonScanner()
    stop = Stop.KEY
    while stop not in (Stop.CLOSED, Stop.MORE, Stop.TOO_DEEP):
        stop, pos = scanner.scan(body, pos)
        if stop is Stop.ANGLE:
            scanner.skip_angle()
            pos += 1
    return pos if stop is Stop.CLOSED else None


def parse_xtml(body: str, catalog: ToolCatalog) -> tuple[ParsedCall, ...]:
    """The calls in `body`; empty if it is anything else."""
    calls: list[ParsedCall] = []
    pos = 0
    while pos < len(body):
        match = _CALL.match(body, pos)
        tool = catalog.known(_attributes(match["attributes"]).get("tool", "")) if match else None
        call = _call(tool, match["body"], catalog) if match and tool else ()
        if match is None or not call:
            return ()
        calls += call
        pos = match.end()
    return tuple(calls)


def _call(tool: str, body: str, catalog: ToolCatalog) -> tuple[ParsedCall, ...]:
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
    return {result[1]: _unescaped(result[2]) for result in _ATTRIBUTE.finditer(text)}


def _unescaped(text: str) -> str:
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def _typed(text: str, kind: str) -> object:
    """The argument, converted to the type that the model wrote beside it."""
    if kind == "string":
        return text
    for parse in (loads, repair_json):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
