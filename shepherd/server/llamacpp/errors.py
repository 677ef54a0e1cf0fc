"""Errors in the shape of llama.cpp's server."""

from http import HTTPStatus

from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server.api import ErrorReply
from shepherd.server.errors import ApiError
from shepherd.server.wire.openai_errors import EXCEEDS_CONTEXT, INVALID_REQUEST, context_numbers

_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.BAD_GATEWAY: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable_error",
}
_UNSUPPORTED = "unsupported_parameter"


class LlamaErrors:
    """The `ErrorShape` of llama.cpp's server; `param` is an addition."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, _body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return frame(_body(error))


def _body(error: ApiError) -> JsonObject:
    body: JsonObject = {
        "code": error.status,
        "message": error.message,
        "type": _TYPES.get(error.status, INVALID_REQUEST),
        "param": error.param,
    }
    if error.code == _UNSUPPORTED:
        body["type"] = "not_supported_error"
    if error.prompt_tokens:
        body |= context_numbers(error) | {"type": EXCEEDS_CONTEXT}
        body["message"] = (  # clients look for these words
            f"request ({error.prompt_tokens} tokens) exceeds the available context size "
            f"({error.context_size} tokens), try increasing it"
        )
    return {"error": body}
