"""Reduces JSON schemas to the keywords that Gemini understands.

The API's reference lists them at `responseJsonSchema`. The same limits apply to function parameters
in `parametersJsonSchema`.
"""

from typing import Any, cast

from shepherd.backends.api.coerce import as_list, as_object, as_objects, as_texts
from shepherd.backends.api.schemas import without_references
from shepherd.messages import JsonObject

_KEPT = frozenset(
    {"type", "format", "title", "description", "required"}
    | {"minItems", "maxItems", "minimum", "maximum", "propertyOrdering"}
)
_SAY_NOTHING = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "default", "deprecated"}
    | {"example", "examples", "readOnly", "writeOnly", "nullable"}
)


def gemini_schema(schema: JsonObject) -> tuple[JsonObject, frozenset[str]]:
    """`schema` in Gemini's subset, and the constraints that the subset can't express."""
    lost: set[str] = set()
    return _cut(without_references(schema), lost), frozenset(lost)


def _cut(node: Any, lost: set[str]) -> JsonObject:
    if not isinstance(node, dict):
        if node is False:
            lost.add("false")
        return {}
    merged = _merged(cast(JsonObject, node), lost)
    result: JsonObject = {}
    for key, value in merged.items():
        if key in _KEPT:
            result[key] = value
        elif (name := {"oneOf": "anyOf"}.get(key, key)) in _PARTS:
            result[name] = _PARTS[name](value, lost)
        elif key in ("enum", "const"):
            result |= _choices(as_list(value) if key == "enum" else [value], lost)
        elif key not in _SAY_NOTHING:
            lost.add(key)
    if merged.get("nullable") is True and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def _cut_named(value: Any, lost: set[str]) -> JsonObject:
    return {name: _cut(part, lost) for name, part in as_object(value).items()}


def _cut_each(value: Any, lost: set[str]) -> list[JsonObject]:
    return [_cut(part, lost) for part in as_list(value)]


def _cut_unless_bool(value: Any, lost: set[str]) -> JsonObject | bool:
    return value if isinstance(value, bool) else _cut(value, lost)


_PARTS = {
    "properties": _cut_named,
    "items": _cut,
    "additionalProperties": _cut_unless_bool,
    "prefixItems": _cut_each,
    "anyOf": _cut_each,
}


def _merged(schema: JsonObject, lost: set[str]) -> JsonObject:
    """The schema with the parts of its `allOf` merged; the outer one of two values wins."""
    whole = {key: value for key, value in schema.items() if key != "allOf"}
    for part in as_objects(schema.get("allOf")):
        for key, value in _merged(part, lost).items():
            if key == "properties":
                whole[key] = as_object(value) | as_object(whole.get(key))
            elif key == "required":
                both = [*as_texts(whole.get(key)), *as_texts(value)]
                whole[key] = list(dict.fromkeys(both))
            elif whole.setdefault(key, value) != value:
                lost.add("allOf")
    return whole


def _choices(values: list[Any], lost: set[str]) -> JsonObject:
    """Gemini has choices of texts and numbers; null is part of the type."""
    plain = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    if plain and len(plain) + values.count(None) == len(values):
        return {"enum": plain}
    lost.add("enum")
    return {}
