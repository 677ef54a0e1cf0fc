"""`response_format` and `grammar` as an `OutputFormat`."""

from typing import cast

from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.openai.requests import ChatRequest
from shepherd.structure import OutputFormat

_ANY_OBJECT: JsonObject = {"type": "object"}


def output_format(request: ChatRequest) -> OutputFormat | None:
    """What the answer must look like, None if that is free; raises ApiError."""
    wanted = request.response_format
    fields = cast(JsonObject, wanted) if isinstance(wanted, dict) else {"type": wanted}
    kind = fields.get("type")
    if request.grammar:
        if kind not in (None, "text"):
            raise ApiError(400, "grammar: not with a response_format", "invalid_value", "grammar")
        return OutputFormat(grammar=request.grammar)
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return OutputFormat(_schema(fields.get("schema") or _ANY_OBJECT))
    if kind == "json_schema":
        return _json_schema(fields.get("json_schema"))
    raise _bad("its type must be text, json_object or json_schema")


def _json_schema(value: object) -> OutputFormat:
    if not isinstance(value, dict):
        raise _bad("json_schema must be an object with a schema")
    fields = cast(JsonObject, value)
    return OutputFormat(_schema(fields.get("schema")), strict=fields.get("strict") is True)


def _schema(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise _bad("the schema must be an object")
    return cast(JsonObject, value)


def _bad(reason: str) -> ApiError:
    where = "response_format"
    return ApiError(400, f"{where}: {reason}", "invalid_value", where)
