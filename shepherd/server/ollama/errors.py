"""Errors in Ollama's shape."""

from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.server.api import ErrorReply
from shepherd.server.errors import ApiError


class OllamaErrors:
    """Ollama's `ErrorShape`; its streams are lines of JSON."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, _body(error), error.headers)

    def event(self, error: ApiError) -> str:
        return line(_body(error))


def _body(error: ApiError) -> JsonObject:
    return {"error": error.message}


def line(data: JsonObject) -> str:
    """One line of a stream."""
    return f"{to_json(data)}\n"
