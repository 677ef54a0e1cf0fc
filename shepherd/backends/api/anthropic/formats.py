"""`OutputFormat` for an API that enforces a part of JSON schema, or asks for it in words."""

import json
from typing import Any, cast

from shepherd.backends.api.history.schemas import without_references
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
    """A schema has a part that takes anything, which the API can't say."""


def enforced(asked: OutputFormat, *, formats: bool) -> JsonObject | None:
    """The `output_config.format` that enforces what is asked for, None if it takes words.

    `formats`: whether the model can be held to a schema. Bounds of numbers and lengths go into the
    descriptions. Raises InvalidRequestError for a grammar, and if all must hold and can't.
    """
    if asked.schema is None:
        message = "This API has no grammars; ask for JSON with a schema instead"
        raise InvalidRequestError(message, "grammar")
    lost: list[str] = []
    try:
        schema = _narrowed(without_references(asked.schema), lost) if formats else None
    except _OpenError:
        schema = None
    if asked.strict and (schema is None or lost):
        what = f" {lost[0]!r}" if schema is not None else " all of it"
        message = f"This schema can't be enforced here: the model can't be held to{what}"
        raise InvalidRequestError(message, "response_format")
    return None if schema is None else {"type": "json_schema", "schema": schema}


def in_words(asked: OutputFormat) -> str:
    """What to tell a model that can't be held to a schema."""
    schema = json.dumps(asked.schema, ensure_ascii=False)
    return f"Answer with JSON only, no other text, that fits this JSON schema:\n{schema}"


def _narrowed(schema: Any, lost: list[str]) -> JsonObject:
    """The schema in the API's words; what they lack goes to `lost` and into the description."""
    if not isinstance(schema, dict):
        raise _OpenError
    given = cast(JsonObject, schema)
    result = {key: given[key] for key in _KEPT if key in given} | _shape(given, lost)
    if not result.keys() - {"title", "description", "required"}:
        raise _OpenError
    hints = {k: v for k, v in given.items() if k not in (*_KEPT, *_PARTS, *_IGNORED, *result)}
    if hints:
        lost.extend(hints)
        said = [str(given.get("description", "")), json.dumps(hints, ensure_ascii=False)]
        result["description"] = " ".join(text for text in said if text)
    return result


def _shape(given: JsonObject, lost: list[str]) -> JsonObject:
    kinds = given.get("type")
    if isinstance(kinds, list):
        return {"anyOf": [_narrowed({**given, "type": k}, lost) for k in cast(list[Any], kinds)]}
    result: JsonObject = {} if kinds is None else {"type": kinds}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(given.get(key), list):
            name = "anyOf" if key == "oneOf" else key
            result[name] = [_narrowed(part, lost) for part in given[key]]
    if kinds == "object":
        result |= _object(given, lost)
    if kinds == "array":
        result["items"] = _narrowed(given.get("items"), lost)
        if given.get("minItems") in (0, 1):
            result["minItems"] = given["minItems"]
    if given.get("format") in _FORMATS:
        result["format"] = given["format"]
    return result


def _object(given: JsonObject, lost: list[str]) -> JsonObject:
    """The API's objects have no properties but those that are named."""
    properties = given.get("properties")
    more = given.get("additionalProperties")
    if isinstance(more, dict) or not (isinstance(properties, dict) and properties):
        raise _OpenError
    named = cast(JsonObject, properties)
    if more is True:
        lost.append("additionalProperties")
    return {
        "properties": {name: _narrowed(part, lost) for name, part in named.items()},
        "additionalProperties": False,
    }
