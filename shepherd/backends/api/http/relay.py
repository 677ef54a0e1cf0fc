"""Errors that another Shepherd passes on from the provider behind it, unchanged.

That Shepherd has named the provider and made all sensible retries. Nothing is added to its text and
no request is repeated, so neither texts nor requests multiply along a chain of Shepherds.
"""

import json
from typing import cast

from shepherd.backends.api.coerce import as_object, as_text
from shepherd.errors import (
    AccessError,
    BackendError,
    BusyError,
    InvalidRequestError,
    UnreachableError,
)
from shepherd.messages import JsonObject

ACCESS = "provider_access"
REFUSED = "provider_refused"
UNREACHABLE = "provider_unreachable"
BUSY = "provider_busy"
FAILED = "backend_error"

_ERRORS = {ACCESS: AccessError, REFUSED: InvalidRequestError, UNREACHABLE: UnreachableError}


def relay_code(error: BackendError) -> str:
    """The code with which our server passes on a provider's error; "" for other errors."""
    if not error.from_provider:
        return ""
    if isinstance(error, BusyError):
        return BUSY
    return next((code for code, kind in _ERRORS.items() if isinstance(error, kind)), "")


def relayed(body: object, text: str, retry_after: float | None) -> BackendError | None:
    """The error that an upstream passes on, None if the error is its own."""
    error = _error(body)
    code = as_text(error.get("code"))
    if code == BUSY:
        return BusyError(text) if retry_after is None else BusyError(text, retry_after)
    kind = _ERRORS.get(code)
    if kind is InvalidRequestError:
        return InvalidRequestError(text, as_text(error.get("param")) or None)
    return None if kind is None else kind(text)


def is_final(body: object) -> bool:
    """Whether a Shepherd says that its own model failed, which would happen again."""
    return as_text(_error(body).get("code")) == FAILED


def _error(body: object) -> JsonObject:
    if isinstance(body, str):
        try:
            body = cast(object, json.loads(body))
        except (ValueError, RecursionError):
            return {}
    return as_object(as_object(body).get("error"))
