"""JSON Schemas of servers: small and harmless for models, strict for arguments."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, cast

from pydantic import ConfigDict, model_validator

from shepherd.messages import JsonObject
from shepherd.tools.base import Arguments

MAX_SCHEMA_BYTES = 16_384
"""A longer schema is reduced to the names and types of its properties."""
_MAX_DEPTH = 12
_MAX_DESCRIPTION = 300
_MAX_PROBLEM = 300
_KEPT = frozenset(
    {"type", "enum", "const", "required", "minimum", "maximum", "minItems", "maxItems",
     "minLength", "maxLength"}
)  # fmt: skip
_ALTERNATIVES = ("anyOf", "oneOf")


def model_schema(schema: Mapping[str, Any]) -> JsonObject:
    """The schema as a model sees it: an object, without references and unusual keywords.

    Regular expressions, formats, examples and defaults are left out: the server checks them.
    """
    result = _Reduction(schema).of(schema, 0)
    properties = cast(JsonObject, result.get("properties", {}))
    required = [name for name in cast(list[Any], result.get("required", [])) if name in properties]
    whole: JsonObject = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    if len(json.dumps(whole)) <= MAX_SCHEMA_BYTES:
        return whole
    whole["properties"] = {name: _outline(part) for name, part in properties.items()}
    if len(json.dumps(whole)) <= MAX_SCHEMA_BYTES:
        return whole
    return {"type": "object", "properties": {}}


def _outline(part: object) -> JsonObject:
    kind = cast(JsonObject, part).get("type") if isinstance(part, dict) else None
    return {"type": kind} if isinstance(kind, str) else {}


class _Reduction:
    """Reduces the parts of one schema; local references are resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts = 2000

    def of(self, node: object, depth: int) -> JsonObject:
        """The reduced part; one that is too deep, or one of too many, allows everything."""
        self._parts -= 1
        if not isinstance(node, Mapping) or depth > _MAX_DEPTH or self._parts < 0:
            return {}
        part = cast(Mapping[str, Any], node)
        if isinstance(reference := part.get("$ref"), str):
            return self.of(self._resolved(reference), depth + 1)
        result: JsonObject = {key: value for key, value in part.items() if key in _KEPT}
        if isinstance(text := part.get("description"), str) and text.strip():
            result["description"] = " ".join(text.split())[:_MAX_DESCRIPTION]
        self._add_nested(part, result, depth)
        return result

    def _add_nested(self, part: Mapping[str, Any], result: JsonObject, depth: int) -> None:
        if isinstance(properties := part.get("properties"), Mapping):
            named = cast(Mapping[str, Any], properties)
            result["properties"] = {str(n): self.of(p, depth + 1) for n, p in named.items()}
        if isinstance(items := part.get("items"), Mapping):
            result["items"] = self.of(cast(object, items), depth + 1)
        for key in _ALTERNATIVES:
            if isinstance(options := part.get(key), list):
                reduced = [self.of(option, depth + 1) for option in cast(list[object], options)]
                result["anyOf"] = [option for option in reduced if option] or [{}]
        if isinstance(parts := part.get("allOf"), list) and len(cast(list[object], parts)) == 1:
            result |= self.of(cast(list[object], parts)[0], depth + 1)
        if isinstance(part.get("additionalProperties"), bool):
            result["additionalProperties"] = part["additionalProperties"]

    def _resolved(self, reference: str) -> object:
        """The part that a local reference names; nothing is fetched for others."""
        if not reference.startswith("#"):
            return {}
        place = dict[str, Any](self._root)
        for step in filter(None, reference.lstrip("#").split("/")):
            node: object = place.get(step.replace("~1", "/").replace("~0", "~"))
            if not isinstance(node, dict):
                return {}
            place = cast(dict[str, Any], node)
        return place


class JsonArguments(Arguments):
    """Arguments of a server's tool, checked against its schema; see `arguments_model`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    checked_schema: ClassVar[JsonObject] = {}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        values = _without_null(cast(JsonObject, data), cls.checked_schema)
        if problem := _problem(values, cls.checked_schema):
            raise ValueError(problem)
        return values

    @cached_property
    def values(self) -> JsonObject:
        """The arguments as they are sent."""
        return dict(self.model_extra or {})


def arguments_model(name: str, schema: JsonObject) -> type[JsonArguments]:
    """The arguments of a tool with this reduced schema."""
    return type(f"{name}_arguments", (JsonArguments,), {"checked_schema": schema, "__doc__": None})


def _without_null(values: JsonObject, schema: JsonObject) -> JsonObject:
    """The arguments without null for optional ones: small models send it for omitted ones."""
    properties = cast(JsonObject, schema.get("properties", {}))
    required = cast(list[str], schema.get("required", []))

    def is_kept(name: str, value: object) -> bool:
        return value is not None or name in required or "null" in json.dumps(properties.get(name))

    return {name: value for name, value in values.items() if is_kept(name, value)}


def _problem(values: JsonObject, schema: JsonObject) -> str:
    """The first problem of the arguments in a sentence, "" if there is none."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    validator: Any = Draft202012Validator(schema, registry=Registry())
    try:
        errors = cast(Iterable[ValidationError], validator.iter_errors(values))
        error = next(iter(errors), None)
    except (SchemaError, TypeError, ValueError, RecursionError, AttributeError):
        return ""  # a broken schema; the server checks the arguments itself
    if error is None:
        return ""
    place = ".".join(str(step) for step in error.absolute_path)
    return f"{place}: {error.message}"[:_MAX_PROBLEM] if place else error.message[:_MAX_PROBLEM]
