"""Errors in the shape of the Responses API."""

from dataclasses import replace

from shepherd.json_text import frame
from shepherd.server.errors import ApiError, ErrorReply
from shepherd.server.wire.errors import error_body

_FIELDS = {"messages": "input", "response_format": "text.format"}


class ResponsesErrors:
    """The `ErrorShape` of the Responses API: OpenAI's, and an event of type `error`."""

    def reply(self, error: ApiError) -> ErrorReply:
        return ErrorReply(error.status, error_body(_about_input(error)), error.headers)

    def event(self, error: ApiError) -> str:
        """The published fields, and the object from which OpenAI's clients raise an exception."""
        error = _about_input(error)
        fields = {"code": error.code, "message": error.message, "param": error.param}
        data = {"type": "error", "sequence_number": 0, **fields, **error_body(error)}
        return frame(data, "error")


def _about_input(error: ApiError) -> ApiError:
    """The error with this API's name for the field."""
    return replace(error, param=_FIELDS.get(error.param or "", error.param))
