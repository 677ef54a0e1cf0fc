"""JSON schemas cut down to the keywords that Gemini understands.

They are those that the API's reference names at `responseJsonSchema`; function parameters in
`parametersJsonSchema` are held to the same.
"""

from typing import Any, cast

from shepherd.backends.api.coerce import as_list, as_object, as_objects, as_texts
from shepherd.backends.api.history.schemas import without_references
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
    """`schema` in Gemini's subset, and the constraints that have no place in it."""
    lost: set[str] = set()
    return _cut(without_references(schema), lost), frozenset(lost)


def _cut(node: Any, lost: set[str]) -> JsonObject:
    if not isinstance(node, dict):
        if node is False:
            lost.add("false")
        return {}
    given = _merged(cast(JsonObject, node), lost)
    result: JsonObject = {}
    for key, value in given.items():
        if key in _KEPT:
            result[key] = value
        elif (name := {"oneOf": "anyOf"}.get(key, key)) in _PARTS:
            result[name] = _PARTS[name](value, lost)
        elif key in ("enum", "const"):
            result |= _choices(as_list(value) if key == "enum" else [value], lost)
        elif key not in _SAY_NOTHING:
            lost.add(key)
    if given.get("nullable") is True and isinstance(result.get("type"), str):
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


def _merged(given: JsonObject, lost: set[str]) -> JsonObject:
    """`given` with the parts of its `allOf` put into it; of two that differ the outer one holds."""
    whole = {key: value for key, value in given.items() if key != "allOf"}
    for part in as_objects(given.get("allOf")):
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
    """Gemini has choices of texts and numbers; null stands in the type."""
    plain = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    if plain and len(plain) + values.count(None) == len(values):
        return {"enum": plain}
    lost.add("enum")
    return {}
