"""The format of the answer that `generationConfig` demands."""

from typing import cast

from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.gemini.requests import GenerationConfig
from shepherd.server.gemini.schema import json_schema
from shepherd.structure import OutputFormat

_TEXT, _JSON, _ENUM = "text/plain", "application/json", "text/x.enum"
_ANY_OBJECT: JsonObject = {"type": "object"}
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"} | {n: f"\\x{n:02X}" for n in range(32)})


def output_format(config: GenerationConfig) -> OutputFormat | None:
    """The format, None for free text; raises ApiError for one that is not served."""
    kind, schema = config.response_mime_type or _TEXT, _schema(config)
    if kind == _JSON:
        return OutputFormat(schema or _ANY_OBJECT)
    if kind == _ENUM:
        return OutputFormat(grammar=_choices(schema))
    if kind != _TEXT:
        where = "generationConfig.responseMimeType"
        message = f"{where}: must be {_TEXT}, {_JSON} or {_ENUM}; others are not served"
        raise unsupported(where, message)
    if schema is not None:
        raise _bad("responseMimeType", f"must be {_JSON} or {_ENUM} with a schema")
    return None


def _schema(config: GenerationConfig) -> JsonObject | None:
    schema, own = config.response_json_schema, config.response_schema
    if schema is not None and own is not None:
        raise _bad("responseJsonSchema", "not with a responseSchema")
    return json_schema(own) if own is not None else schema


def _choices(schema: JsonObject | None) -> str:
    """A grammar of the texts in an `enum`, which are written without quotes."""
    value: object = (schema or {}).get("enum")
    choices = cast(list[object], value) if isinstance(value, list) else []
    texts = [choice for choice in choices if isinstance(choice, str) and choice]
    if not texts or len(texts) != len(choices):
        raise _bad("responseSchema", f"needs an enum of texts with {_ENUM}")
    return "root ::= " + " | ".join(f'"{text.translate(_ESCAPES)}"' for text in texts)


def _bad(field: str, reason: str) -> ApiError:
    return invalid(f"generationConfig.{field}", reason)
