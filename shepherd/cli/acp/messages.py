"""JSON-RPC messages as lines: parsed, checked and written."""

import json
from typing import Any, cast

from shepherd.json_text import is_finite
from shepherd.messages import JsonObject
from shepherd.tools.text import valid_json

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603


class MessageError(Exception):
    """A line is not a message; `id` is that of the request, None if it has none."""

    def __init__(self, code: int, text: str, id: str | int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = id

    @property
    def response(self) -> JsonObject:
        """The answer that reports the error."""
        error = {"code": self.code, "message": str(self)}
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


def parse_message(line: bytes) -> JsonObject:
    """The checked message in `line`; raises MessageError.

    Extension data (`_meta`) is left out of the parameters, because nothing here reads it.
    """
    try:
        data = valid_json(json.loads(line.decode(), parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise MessageError(PARSE_ERROR, f"Parse error: the line is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise MessageError(INVALID_REQUEST, "Invalid request: a message must be a JSON object")
    message = cast(JsonObject, data)
    if not is_finite(message):
        raise MessageError(INVALID_REQUEST, "Invalid request: a number is infinite")
    return _checked(message)


def message_line(message: JsonObject) -> bytes:
    """The message as a line; lone surrogates become question marks."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace") + b"\n"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _checked(message: JsonObject) -> JsonObject:
    if "id" in message and not _is_id(message["id"]):
        raise MessageError(INVALID_REQUEST, "Invalid request: the id must be a text or an integer")
    request_id = cast("str | int | None", message.get("id"))
    if "method" in message:
        return _checked_call(message, request_id)
    if "id" not in message:
        raise MessageError(INVALID_REQUEST, "Invalid request: there is neither a method nor an id")
    if "error" in message:
        message["error"] = _checked_error(message["error"])
    return message


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _checked_call(message: JsonObject, id: str | int | None) -> JsonObject:
    if not isinstance(message["method"], str):
        raise MessageError(INVALID_REQUEST, "Invalid request: the method must be a text", id)
    params = message.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise MessageError(INVALID_REQUEST, "Invalid request: params must be an object", id)
    values = cast(JsonObject, params)
    return message | {"params": {key: values[key] for key in values if key != "_meta"}}


def _checked_error(error: object) -> dict[str, Any]:
    """The error of a response, with a number and a text whatever the client sent."""
    match error:
        case {"code": int(code), "message": str(text)}:
            return {"code": code, "message": text}
        case _:
            return {"code": INTERNAL_ERROR, "message": str(error)}
