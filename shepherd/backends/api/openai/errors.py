"""Errors in the middle of a stream."""

from shepherd.backends.api.adapter import ErrorDelta
from shepherd.backends.api.coerce import as_count, as_object, as_text
from shepherd.messages import JsonObject

_STATUSES = (
    (429, ("rate_limit", "insufficient_quota", "too_many_requests")),
    (401, ("authentication", "invalid_api_key")),
    (403, ("permission",)),
    (404, ("not_found",)),
    (503, ("overloaded", "unavailable")),
    (400, ("invalid", "bad_request", "badrequest", "context_length", "exceed_context", "too_long")),
)


def error_delta(body: JsonObject) -> ErrorDelta:
    """The error of an event that has an `error`, or that is itself one.

    The status is the one in the error, else the usual one for its kind, else 500.
    """
    error = as_object(body.get("error")) or body
    for name in ("code", "status", "http_code"):
        code = error.get(name)
        status = as_count(int(code) if isinstance(code, str) and code.isdecimal() else code)
        if status is not None and 400 <= status < 600:
            return ErrorDelta(body, status)
    kinds = f"{as_text(error.get('code'))} {as_text(error.get('type'))}".lower()
    result = (status for status, words in _STATUSES if any(word in kinds for word in words))
    return ErrorDelta(body, next(result, 500))
