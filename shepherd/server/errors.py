"""Every failure as an HTTP status, a message and a code; `ErrorShape` makes each API's body."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from shepherd import errors, messages, validation
from shepherd.backends.api.http.failures import FAILED, relay_code
from shepherd.conversation.shared.updates import RefusalCode, SharedSessionError
from shepherd.server.seal import SealKeyError

INTERNAL_ERROR = "internal_error"
ANSWER_CUT = "answer_cut"
STORE_UNAVAILABLE = "store_unavailable"
CONTEXT_FULL = "context_length_exceeded"

logger = logging.getLogger(__name__)

_NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients then do not retry."""

_HTTP_PROBLEMS: dict[int, tuple[str, str]] = {
    HTTPStatus.NOT_FOUND: ("not_found", "There is nothing at this path."),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "method_not_allowed",
        "This path does not take that method; the Allow header names those it takes.",
    ),
}
_ITSELF = "send the content itself in the messages"
NOT_SERVED: Mapping[str, str] = {
    "/v1/files": f"Files are not stored here: {_ITSELF}.",
    "/v1beta/files": f"Files are not stored here: {_ITSELF}.",
    "/upload": f"Files are not stored here: {_ITSELF}.",
    "/v1beta/cachedContents": "Send the whole conversation: what is known of it is not read again.",
    "/v1beta/tunedModels": "Models are not trained here.",
    "/v1/uploads": f"Files are not stored here: {_ITSELF}.",
    "/v1/vector_stores": "Files are not searched here: use /v1/embeddings, and search yourself.",
    "/v1/audio": "Audio is not served here: send a transcript as text.",
    "/v1/realtime": "Audio is not served here: send text to /v1/responses.",
    "/v1/images": "This server makes no images; models that see get them in messages.",
    "/v1/videos": "This server makes no videos.",
    "/v1/moderations": "Nothing is moderated here: ask a model in /v1/chat/completions.",
    "/v1/batches": "Batches are not served: send each request by itself.",
    "/v1/messages/batches": "Batches are not served: send each request to /v1/messages.",
    "/v1/conversations": "Conversations are not stored: use previous_response_id of /v1/responses.",
    "/v1/assistants": "Assistants are not served: use /v1/responses.",
    "/v1/threads": "Threads are not served: use previous_response_id of /v1/responses.",
    "/v1/fine_tuning": "Models are not trained here.",
    "/v1/evals": "Evaluations are not served: send each request by itself.",
    "/v1/containers": "Code does not run here: offer a tool that the client runs.",
    "/v1/skills": "Skills are not stored here: put them into the system message.",
}
"""What is not served, by paths with all paths below them, and what to do instead."""

_REFUSAL_STATUS = {
    RefusalCode.REQUEST_ENDED: 409,
    RefusalCode.REQUEST_NOT_FOUND: 404,
    RefusalCode.SESSION_NOT_FOUND: 404,
    RefusalCode.CONVERSATION_BUSY: 409,
    RefusalCode.APPROVAL_NOT_FOUND: 404,
    RefusalCode.NOT_YOUR_REQUEST: 403,
    RefusalCode.INVALID_DECISION: 400,
}


@dataclass(eq=False)
class ApiError(Exception):
    """A failure as it is reported to the client, in any API's shape.

    `prompt_tokens` and `context_size` are those of a conversation that does not fit, 0 if unknown.
    `request_id` is noted when the error is reported.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    prompt_tokens: int = 0
    context_size: int = 0
    request_id: str = ""


class ErrorReply(Struct, frozen=True):
    """An error as an HTTP response with a body in JSON."""

    status: int
    body: messages.JsonObject
    headers: Mapping[str, str] = {}


class ErrorShape(Protocol):
    """The format in which one API reports errors."""

    def reply(self, error: ApiError) -> ErrorReply:
        """The response for an error before anything was sent."""
        ...

    def event(self, error: ApiError) -> str:
        """The last frame of a stream that the error ends (see `frame`)."""
        ...


def answer_cut(why: str) -> ApiError:
    """The error that ends an incomplete answer."""
    return ApiError(502, why or "The answer broke off.", ANSWER_CUT)


def invalid(param: str, reason: str) -> ApiError:
    """A field with a wrong value; the message begins with the field's name."""
    return ApiError(400, f"{param}: {reason}", "invalid_value", param)


def unsupported(param: str, message: str) -> ApiError:
    """An unsupported parameter that would change the answer: it is refused, never ignored."""
    return ApiError(400, message, "unsupported_parameter", param)


def not_served(path: str) -> str:
    """What to do instead of asking for this path; "" for one that no API has."""
    return next((text for p, text in NOT_SERVED.items() if f"{path}/".startswith(f"{p}/")), "")


def to_api_error(error: BaseException, context_size: int = 0) -> ApiError:
    """The error that the client sees for `error`; internal details stay in the log.

    `context_size` is the model's, in tokens, 0 if unknown.
    """
    match error:
        case ApiError():
            return error
        case errors.ContextFullError():
            return _context_error(error, context_size)
        case SharedSessionError():
            # the field of the body that is at fault, where one is
            param = "decision" if error.code is RefusalCode.INVALID_DECISION else None
            return ApiError(_REFUSAL_STATUS[error.code], str(error), error.code.value, param)
        case errors.ShepherdError():
            return _shepherd_error(error)
        case HTTPException():
            return _http_error(error)
        case _:
            message = "The server failed to answer this request; its log says why."
            return ApiError(500, message, INTERNAL_ERROR)


def _shepherd_error(error: errors.ShepherdError) -> ApiError:
    """The error for a failure with a message for the user; that of a provider keeps its code."""
    code = relay_code(error) if isinstance(error, errors.BackendError) else ""
    match error:
        case errors.InvalidRequestError():
            return ApiError(400, str(error), code or "invalid_value", error.param)
        case errors.BusyError():
            headers = {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
            code = code or "server_busy"
            return ApiError(503, str(error), code, headers=headers)
        case errors.ModelLoadError():
            return ApiError(503, str(error), "model_not_loaded")
        case errors.SessionStorageError():
            message = "Saved sessions can't be used at the moment; the server's log says why."
            return ApiError(503, message, STORE_UNAVAILABLE)
        case SealKeyError():
            message = (
                "The key for signatures can't be used at the moment; the server's log says why."
            )
            return ApiError(503, message, STORE_UNAVAILABLE)
        case _:
            status = 502 if code else 500  # the failure of a provider, or our own
            code = code or FAILED
            return ApiError(status, str(error), code, headers=dict(_NO_RETRY))


def log_failure(error: BaseException, reported: ApiError) -> None:
    """Log a failure of the server; a defect with its traceback."""
    # the errors of clients are no failures, and a busy server is none
    is_ours = reported.status in (500, 502) or reported.code == STORE_UNAVAILABLE
    if is_ours and isinstance(error, errors.ShepherdError):
        logger.error("A request failed: %s", error)
    elif reported.code == INTERNAL_ERROR:
        logger.error("A request failed", exc_info=error)


def invalid_body(error: ValidationError) -> ApiError:
    """The first problem of a request, with its path in the body."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        problem = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"The body is not valid JSON: {problem}", "invalid_json")
    param = validation.key_of(first)
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return ApiError(400, validation.describe_problem(first, param), code, param or None)


def _context_error(error: errors.ContextFullError, context_size: int) -> ApiError:
    """The error for a prompt that does not fit; in OpenAI's words, which clients search for."""
    prompt = error.prompt_tokens
    if prompt is None and error.tokens_over is not None:
        prompt = context_size + error.tokens_over
    if prompt is None or not context_size:
        return ApiError(400, str(error), CONTEXT_FULL, "messages")
    needed = max(prompt, context_size + 1)  # an answer needs at least one
    message = (
        f"This model's maximum context length is {context_size} tokens. However, your messages "
        f"resulted in {needed} tokens. Please reduce the length of the messages."
    )
    return ApiError(
        400,
        message,
        CONTEXT_FULL,
        "messages",
        prompt_tokens=needed,
        context_size=context_size,
    )


def _http_error(error: HTTPException) -> ApiError:
    """The error for one of Starlette's, such as an unknown path."""
    code, message = _HTTP_PROBLEMS.get(error.status_code, (None, error.detail))
    return ApiError(error.status_code, message, code, headers=dict(error.headers or {}))
