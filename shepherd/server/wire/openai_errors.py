"""Errors in OpenAI's shape, which the server's own paths use too."""

from http import HTTPStatus

from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server.api import ErrorReply
from shepherd.server.errors import ApiError

INVALID_REQUEST = "invalid_request_error"
_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.BAD_GATEWAY: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
}


class OpenAiErrors:
    """OpenAI's `ErrorShape`."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, error_body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return frame(error_body(error))


def error_body(error: ApiError) -> JsonObject:
    """OpenAI's error object."""
    return {
        "error": {
            "message": error.message,
            "type": _TYPES.get(error.status, INVALID_REQUEST),
            "param": error.param,
            "code": error.code,
        }
    }
