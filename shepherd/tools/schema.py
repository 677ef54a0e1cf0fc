"""JSON schemas without unnecessary parts, because every token costs in every conversation."""

from copy import deepcopy
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel

from shepherd.messages import JsonObject

_NOISE = frozenset(
    {
        "title",
        "default",
        "additionalProperties",
        "$defs",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    }
)
_NAMED_PARTS = frozenset({"properties"})


def compact_schema(kind: type[BaseModel]) -> JsonObject:
    """The JSON schema of `kind` without titles, defaults, ranges and references.

    Properties stay in the order of the fields. Ranges are still checked; a
    violation becomes an error for the model.
    """
    return deepcopy(_schema(kind))


@lru_cache(maxsize=256)
def _schema(kind: type[BaseModel]) -> JsonObject:
    full = kind.model_json_schema()
    definitions = cast(JsonObject, full.get("$defs", {}))
    schema = cast(JsonObject, _compact(full, definitions))
    schema.pop("description", None)
    return {"type": "object", "properties": schema.pop("properties", {})} | schema


def _compact(node: object, definitions: JsonObject) -> object:
    if isinstance(node, list):
        return [_compact(item, definitions) for item in cast(list[object], node)]
    if not isinstance(node, dict):
        return node
    mapping = cast(dict[str, Any], node)
    if "$ref" in mapping:
        return _compact(definitions[str(mapping["$ref"]).rsplit("/", 1)[-1]], definitions)
    result: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in _NAMED_PARTS:
            parts = cast(dict[str, Any], value)
            result[key] = {name: _compact(part, definitions) for name, part in parts.items()}
        elif key not in _NOISE:
            result[key] = _compact(value, definitions)
    return result
