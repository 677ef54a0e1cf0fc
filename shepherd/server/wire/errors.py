"""Errors in the shapes of OpenAI, which the server's own paths use too, and of llama.cpp."""

from abc import ABC, abstractmethod
from http import HTTPStatus

from shepherd import json_text, messages
from shepherd.server.errors import ApiError, ErrorReply

INVALID_REQUEST = "invalid_request_error"
EXCEEDS_CONTEXT = "exceed_context_size_error"
_OPENAI_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.BAD_GATEWAY: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
}


class JsonErrors(ABC):
    """An `ErrorShape` with one body, in the response and in a server-sent event."""

    @abstractmethod
    def body(self, error: ApiError) -> messages.JsonObject:
        """The error object."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, self.body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return json_text.frame(self.body(error))


class OpenAiErrors(JsonErrors):
    """OpenAI's `ErrorShape`; `context_type` is the type of a conversation that does not fit."""

    def __init__(self, context_type: str = INVALID_REQUEST) -> None:
        self._context_type = context_type

    def body(self, error: ApiError) -> messages.JsonObject:
        """OpenAI's error object, with both numbers of tokens if they are known."""
        body = error_body(error)
        if error.prompt_tokens:  # of a conversation that does not fit
            body["error"] |= context_numbers(error) | {"type": self._context_type}
        return body


def error_body(error: ApiError) -> messages.JsonObject:
    """OpenAI's error object."""
    return {
        "error": {
            "message": error.message,
            "type": _OPENAI_TYPES.get(error.status, INVALID_REQUEST),
            "param": error.param,
            "code": error.code,
        }
    }


def context_numbers(error: ApiError) -> messages.JsonObject:
    """How large the conversation and the context are, under llama.cpp's names."""
    return {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context_size}


_LLAMA_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.BAD_GATEWAY: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable_error",
}
_UNSUPPORTED = "unsupported_parameter"


class LlamaErrors(JsonErrors):
    """The `ErrorShape` of llama.cpp's server; `param` is an addition."""

    def body(self, error: ApiError) -> messages.JsonObject:
        """llama.cpp's error object, whose message of a full context clients search for words."""
        body: messages.JsonObject = {
            "code": error.status,
            "message": error.message,
            "type": _LLAMA_TYPES.get(error.status, INVALID_REQUEST),
            "param": error.param,
        }
        if error.code == _UNSUPPORTED:
            body["type"] = "not_supported_error"
        if error.prompt_tokens:  # of a conversation that does not fit
            body |= context_numbers(error) | {"type": EXCEEDS_CONTEXT}
            body["message"] = (  # clients look for these words
                f"request ({error.prompt_tokens} tokens) exceeds the available context size "
                f"({error.context_size} tokens), try increasing it"
            )
        return {"error": body}
