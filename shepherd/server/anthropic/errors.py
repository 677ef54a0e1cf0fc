"""Errors in Anthropic's shape."""

from http import HTTPStatus

from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server.errors import CONTEXT_FULL, ApiError, ErrorReply

OVERLOADED = 529
_BUSY = frozenset({"server_busy", "too_many_connections", "provider_busy"})
_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.PAYMENT_REQUIRED: "billing_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
    OVERLOADED: "overloaded_error",
}


class AnthropicErrors:
    """Anthropic's `ErrorShape`."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(_status(error), error_body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return frame(error_body(error), "error")


def error_body(error: ApiError) -> JsonObject:
    """Anthropic's error object."""
    status = _status(error)
    usual = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    reported: JsonObject = {"type": _TYPES.get(status, usual), "message": _message(error)}
    if error.code is not None:
        reported["details"] = {"error_code": error.code}
    return {
        "type": "error",
        "error": reported,
        "request_id": error.request_id or None,
    }


def _status(error: ApiError) -> int:
    return OVERLOADED if error.code in _BUSY else error.status


def _message(error: ApiError) -> str:
    """The message; clients know a conversation that is too long by its first words."""
    if error.code != CONTEXT_FULL:
        return error.message
    if error.context_size:
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.context_size} maximum"
    return f"prompt is too long: {error.message}"
