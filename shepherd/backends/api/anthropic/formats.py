"""Enforces an `OutputFormat` as far as the API supports JSON schema, or by the prompt."""

import json
from typing import Any, cast

from shepherd.backends.api.schemas import without_references
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.structure import OutputFormat

_KEPT = ("title", "description", "enum", "const", "required")
_FORMATS = (
    *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
    "uuid",
)
_PARTS = ("type", "properties", "additionalProperties", "items", "anyOf", "oneOf", "allOf")
_IGNORED = ("$schema", "$id", "default", "examples", "$comment")


class _OpenError(Exception):
    """A schema has a part that accepts any value, which the API can't express."""


def enforced(output_format: OutputFormat, *, formats: bool) -> JsonObject | None:
    """The `output_config.format` that enforces the format; None if only a prompt can ask for it.

    `formats`: whether the model supports schemas. Bounds of numbers and lengths go into the
    descriptions. Raises InvalidRequestError for a grammar, and for a strict schema that can't be
    enforced.
    """
    if output_format.schema is None:
        message = "This API has no grammars; ask for JSON with a schema instead"
        raise InvalidRequestError(message, "grammar")
    lost: list[str] = []
    try:
        schema = _narrowed(without_references(output_format.schema), lost) if formats else None
    except _OpenError:
        schema = None
    if output_format.strict and (schema is None or lost):
        what = f" {lost[0]!r}" if schema is not None else " all of it"
        message = f"This schema can't be enforced here: the model can't be held to{what}"
        raise InvalidRequestError(message, "response_format")
    return None if schema is None else {"type": "json_schema", "schema": schema}


def in_words(output_format: OutputFormat) -> str:
    """The instruction to a model that does not support schemas."""
    schema = json.dumps(output_format.schema, ensure_ascii=False)
    return f"Answer with JSON only, no other text, that fits this JSON schema:\n{schema}"


def _narrowed(schema: Any, lost: list[str]) -> JsonObject:
    """The schema in the API's keywords; the others go to `lost` and into the description."""
    if not isinstance(schema, dict):
        raise _OpenError
    source = cast(JsonObject, schema)
    result = {key: source[key] for key in _KEPT if key in source} | _shape(source, lost)
    if not result.keys() - {"title", "description", "required"}:
        raise _OpenError
    hints = {k: v for k, v in source.items() if k not in (*_KEPT, *_PARTS, *_IGNORED, *result)}
    if hints:
        lost.extend(hints)
        parts = [str(source.get("description", "")), json.dumps(hints, ensure_ascii=False)]
        result["description"] = " ".join(text for text in parts if text)
    return result


def _shape(schema: JsonObject, lost: list[str]) -> JsonObject:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return {"anyOf": [_narrowed({**schema, "type": k}, lost) for k in cast(list[Any], kinds)]}
    result: JsonObject = {} if kinds is None else {"type": kinds}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            name = "anyOf" if key == "oneOf" else key
            result[name] = [_narrowed(part, lost) for part in schema[key]]
    if kinds == "object":
        result |= _object(schema, lost)
    if kinds == "array":
        result["items"] = _narrowed(schema.get("items"), lost)
        if schema.get("minItems") in (0, 1):
            result["minItems"] = schema["minItems"]
    if schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    return result


def _object(schema: JsonObject, lost: list[str]) -> JsonObject:
    """The API's objects allow only named properties."""
    properties = schema.get("properties")
    more = schema.get("additionalProperties")
    if isinstance(more, dict) or not (isinstance(properties, dict) and properties):
        raise _OpenError
    named = cast(JsonObject, properties)
    if more is True:
        lost.append("additionalProperties")
    return {
        "properties": {name: _narrowed(part, lost) for name, part in named.items()},
        "additionalProperties": False,
    }
