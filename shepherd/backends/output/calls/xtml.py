"""Kimi K3's calls: elements written with control tokens."""

import re

from shepherd.backends.output.calls.catalog import FoundCall, ToolCatalog
from shepherd.backends.output.calls.repair import loads, repair_json
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


def parse_xtml(body: str, catalog: ToolCatalog) -> tuple[FoundCall, ...]:
    """The calls in `body`; empty if it is anything else."""
    calls: list[FoundCall] = []
    pos = 0
    while pos < len(body):
        found = _CALL.match(body, pos)
        tool = catalog.known(_attributes(found["attributes"]).get("tool", "")) if found else None
        call = _call(tool, found["body"], catalog) if found and tool else ()
        if found is None or not call:
            return ()
        calls += call
        pos = found.end()
    return tuple(calls)


def _call(tool: str, body: str, catalog: ToolCatalog) -> tuple[FoundCall, ...]:
    arguments: JsonObject = {}
    pos = 0
    while pos < len(body):
        part = _PART.match(body, pos)
        if part is None:
            return () if body[pos:].strip() else (FoundCall(tool, arguments),)
        if part["tag"] == "json":
            return catalog.from_arguments_text(tool, part["text"])
        attributes = _attributes(part["attributes"])
        arguments[attributes.get("key", "")] = _typed(part["text"], attributes.get("type", ""))
        pos = part.end()
    return (FoundCall(tool, arguments),)


def _attributes(text: str) -> dict[str, str]:
    return {found[1]: _unescaped(found[2]) for found in _ATTRIBUTE.finditer(text)}


def _unescaped(text: str) -> str:
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def _typed(text: str, kind: str) -> object:
    """The argument as the type says that the model wrote beside it."""
    if kind == "string":
        return text
    for parse in (loads, repair_json):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
