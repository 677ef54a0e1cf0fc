"""JSON schemas in the short notation of function signatures, which small models read well."""

import json
from typing import Any, cast

from shepherd.messages import JsonObject, ToolSpec
from shepherd.tools.text import one_line

MAX_SUMMARY, MAX_NOTE, MAX_VALUES, MAX_DEPTH = 160, 90, 8, 2
"""Maximum characters of a summary and of an argument's description, values of an enumeration, and
levels of nested objects."""

_NAMES = {"string", "integer", "number", "boolean", "object", "null"}


def signature(tool: ToolSpec) -> str:
    """The call as `name(a: string, b?: "x" | "y")`; `?` marks an argument that can be left out."""
    return f"{tool.name}({', '.join(_members(tool.parameters, 0))})"


def summary(tool: ToolSpec) -> str:
    """The first sentence of the description on one line."""
    first = _line(tool.description).partition(". ")[0].rstrip(".")
    return _shortened(first, MAX_SUMMARY)


def notes(tool: ToolSpec) -> list[str]:
    """A line for each argument with a description."""
    lines: list[str] = []
    for name, part in _properties(tool.parameters).items():
        text = _mapping(part).get("description")
        if isinstance(text, str) and text.strip():
            lines.append(f"{name}: {_shortened(_line(text), MAX_NOTE)}")
    return lines


def _members(schema: JsonObject, depth: int) -> list[str]:
    required: Any = schema.get("required", [])
    names = cast(list[object], required) if isinstance(required, list) else []
    return [
        f"{name}{'' if name in names else '?'}: {_type(_mapping(part), depth)}"
        for name, part in _properties(schema).items()
    ]


def _type(schema: JsonObject, depth: int) -> str:
    if "const" in schema:
        return _literal(schema["const"])
    listed: Any = schema.get("enum")
    if isinstance(listed, list):
        return _union([_literal(value) for value in cast(list[object], listed)])
    for key in ("anyOf", "oneOf"):
        options: Any = schema.get(key)
        if isinstance(options, list):
            return _union([_type(_mapping(o), depth) for o in cast(list[object], options)])
    kind: Any = schema.get("type", "object" if "properties" in schema else "any")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": k}, depth) for k in cast(list[object], kind)])
    if kind == "array":
        inner = _type(_mapping(schema.get("items")), depth)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object" and depth < MAX_DEPTH and _properties(schema):
        return "{" + ", ".join(_members(schema, depth + 1)) + "}"
    return kind if kind in _NAMES else "any"


def _union(parts: list[str]) -> str:
    different = list(dict.fromkeys(parts))
    more = ["…"] if len(different) > MAX_VALUES else []
    return " | ".join([*different[:MAX_VALUES], *more])


def _properties(schema: JsonObject) -> JsonObject:
    return _mapping(schema.get("properties"))


def _mapping(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _literal(value: object) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False), MAX_NOTE)


def _line(text: str) -> str:
    return one_line(" ".join(text.split()))


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
