"""Errors in Google's shape."""

from http import HTTPStatus

from shepherd.json_text import frame, to_json
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, ErrorReply

_STATUSES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "INVALID_ARGUMENT",
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.REQUEST_TIMEOUT: "DEADLINE_EXCEEDED",
    HTTPStatus.CONFLICT: "ABORTED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.NOT_IMPLEMENTED: "UNIMPLEMENTED",
    HTTPStatus.BAD_GATEWAY: "UNAVAILABLE",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
    HTTPStatus.GATEWAY_TIMEOUT: "DEADLINE_EXCEEDED",
}
_CONFIG = "generationConfig."
_FIELDS = {
    "messages": "contents",
    "tool_choice": "toolConfig.functionCallingConfig.mode",
    "response_format": f"{_CONFIG}responseSchema",
    "grammar": f"{_CONFIG}responseSchema",
    "stop": f"{_CONFIG}stopSequences",
    "top_p": f"{_CONFIG}topP",
    "top_k": f"{_CONFIG}topK",
    "penalty_present": f"{_CONFIG}presencePenalty",
    "penalty_freq": f"{_CONFIG}frequencyPenalty",
    **{name: f"{_CONFIG}{name}" for name in ("temperature", "seed", "logprobs")},
}
"""The fields of this API whose values a backend refuses under its own names."""

_TYPES = "type.googleapis.com/google.rpc."
_DOMAIN = "shepherd"


class GeminiErrors:
    """Google's `ErrorShape`, with server-sent events."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, error_body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return frame(error_body(error))


class GeminiArrayErrors(GeminiErrors):
    """The same for a stream that is one array: the error is its last element."""

    def event(self, error: ApiError) -> str:
        return f",\r\n{to_json(error_body(error))}]"


def error_body(error: ApiError) -> JsonObject:
    """Google's error object; the details have the code, the field and the time to wait.

    A conversation that is too long is reported in Google's words, by which clients know it.
    """
    message = error.message
    if error.context_size:
        message = (
            f"The input token count ({error.prompt_tokens}) exceeds the maximum number of tokens "
            f"allowed ({error.context_size})."
        )
    rest = "INVALID_ARGUMENT" if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else "INTERNAL"
    return {
        "error": {
            "code": error.status,
            "message": message,
            "status": _STATUSES.get(error.status, rest),
            "details": _details(error),
        }
    }


def _details(error: ApiError) -> list[JsonObject]:
    details: list[JsonObject] = []
    if error.code:
        info = {"reason": error.code.upper(), "domain": _DOMAIN}
        details.append({"@type": f"{_TYPES}ErrorInfo", **info})
    if error.param:
        field = _FIELDS.get(error.param, error.param)
        violation = {"field": field, "description": error.message}
        details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": [violation]})
    if (seconds := error.headers.get("Retry-After", "")).isdigit():
        details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{seconds}s"})
    return details
