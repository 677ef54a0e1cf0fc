"""Gemini's schemas, whose types are in capitals, as JSON schemas."""

from collections.abc import Mapping
from typing import Any, cast

from shepherd.messages import JsonObject

_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_NAMES = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "prefix_items": "prefixItems",
    "defs": "$defs",
    "ref": "$ref",
}
_NO_TYPE = "type_unspecified"
_NOT_A_CONSTRAINT = {"propertyOrdering", "nullable", "example"}
_TYPE_FORMATS = {"enum", "int32", "int64", "float", "double"}


def json_schema(schema: Mapping[str, Any]) -> JsonObject:
    """The JSON schema of the same values.

    Counts may be numbers as strings, as in Google's JSON. `nullable` adds null to the values, and
    `propertyOrdering` decides the order in which properties are written.
    """
    fields = {_NAMES.get(name, name): value for name, value in schema.items()}
    result: JsonObject = {}
    for name, value in fields.items():
        if name not in _NOT_A_CONSTRAINT and value is not None:
            result |= _converted(name, value)
    if isinstance(order := fields.get("propertyOrdering"), list) and "properties" in result:
        result["properties"] = _ordered(result["properties"], cast(list[object], order))
    return _nullable(result) if fields.get("nullable") is True else result


def _converted(name: str, value: Any) -> JsonObject:
    match value:
        case str() if name == "type":
            kind = value.lower()
            return {} if kind == _NO_TYPE else {name: kind}
        case list() if name == "type":
            kinds = [k.lower() if isinstance(k, str) else k for k in cast(list[Any], value)]
            return {name: kinds}
        case str() if name in _COUNTS and value.isascii() and value.isdigit() and len(value) < 10:
            return {name: int(value)}
        case str() if name == "format" and value in _TYPE_FORMATS:
            return {}
        case dict() if name in ("properties", "$defs"):
            parts = cast(JsonObject, value)
            return {name: {key: _part(part) for key, part in parts.items()}}
        case list() if name in ("anyOf", "prefixItems"):
            return {name: [_part(part) for part in cast(list[Any], value)]}
        case dict() if name in ("items", "additionalProperties"):
            return {name: _part(cast(JsonObject, value))}
        case _:
            return {name: value}


def _part(value: Any) -> Any:
    return json_schema(cast(JsonObject, value)) if isinstance(value, dict) else value


def _ordered(properties: Any, order: list[object]) -> Any:
    if not isinstance(properties, dict):
        return properties
    parts = cast(JsonObject, properties)
    first = {name: parts[name] for name in order if isinstance(name, str) and name in parts}
    return first | parts


def _nullable(schema: JsonObject) -> JsonObject:
    """The schema or null; choices must list null too."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return schema | {"type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema
