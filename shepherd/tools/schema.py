"""JSON schemas without unnecessary parts, because every token costs in every conversation."""

from copy import deepcopy
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin

from shepherd.messages import JsonObject
from shepherd.records.record import Record, RecordField, fields_of, kind_of

if TYPE_CHECKING:
    from pydantic import BaseModel

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
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}


def compact_schema(kind: "type[Record | BaseModel]") -> JsonObject:
    """The JSON schema of `kind` without titles, defaults, ranges and references.

    Properties stay in the order of the fields. Ranges are still checked; a
    violation becomes an error for the model.
    """
    return deepcopy(_schema(kind))


@lru_cache(maxsize=256)
def _schema(kind: "type[Record | BaseModel]") -> JsonObject:
    if issubclass(kind, Record):
        return _record_schema(kind)
    full = kind.model_json_schema()
    definitions = cast(JsonObject, full.get("$defs", {}))
    schema = cast(JsonObject, _compact(full, definitions))
    schema.pop("description", None)
    return {"type": "object", "properties": schema.pop("properties", {})} | schema


def _record_schema(kind: type[Record]) -> JsonObject:
    fields = fields_of(kind)
    properties = {name: _field_schema(field) for name, field in fields.items()}
    required = [name for name, field in fields.items() if field.is_required]
    schema: JsonObject = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {})


def _field_schema(field: RecordField) -> JsonObject:
    rule = field.rule
    described: JsonObject = {"description": rule.description} if rule.description else {}
    return described | (rule.json_schema or _type_schema(field.kind))


def _type_schema(kind: Any) -> JsonObject:
    """The schema of a type; raises TypeError for one whose field must bring its own."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments), "type": "string"}
    if origin in (list, tuple):
        return {"items": _type_schema(kind_of(arguments[0])), "type": "array"}
    if origin in (Union, UnionType):
        return {"anyOf": [_type_schema(kind_of(one)) for one in arguments]}
    if origin is NoneType:
        return {"type": "null"}
    if issubclass(origin, Record):
        return {"description": origin.__doc__} | _record_schema(origin)
    if origin not in _NAMES:
        raise TypeError(f"{kind} needs a json_schema")
    return {"type": _NAMES[origin]}


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
