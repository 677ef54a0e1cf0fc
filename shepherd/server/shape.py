"""How much work a JSON text is, counted in slices before it is parsed in one go."""

import math
import re
from typing import Any, cast

from shepherd.server.errors import ApiError

MAX_VALUES = 50_000
"""Values in one body, nested ones counted: parsing more takes long enough to be felt by others."""

MAX_ESCAPES = 1_000_000

_SLICE = 64 * 1024
_ESCAPE = re.compile(rb"\\[\s\S]")


def check_shape(body: bytes) -> None:
    """Raise ApiError for a body that takes too long to parse.

    Works in slices, so that other threads go on in between.
    """
    if body.count(b"\\") > MAX_ESCAPES:
        raise _too_much(f"more than {MAX_ESCAPES:,} backslashes")
    values, carry, in_string = 1, b"", False
    for start in range(0, len(body), _SLICE):
        piece = _ESCAPE.sub(b"", carry + body[start : start + _SLICE])
        carry = piece[-1:] if piece.endswith(b"\\") else b""
        parts = piece.split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= len(parts) % 2 == 0
        values += sum(map(outside.count, (b",", b"{", b"[")))
        if values > MAX_VALUES:
            raise _too_much(f"more than {MAX_VALUES:,} values")


def check_finite(value: object) -> None:
    """Raise ApiError for a number that is too large for a float, which JSON reads as infinite."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += cast(dict[str, Any], item).values()
        elif isinstance(item, list):
            pending += cast(list[Any], item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise ApiError(400, "The body has a number that is too large.", "invalid_json")


def _too_much(what: str) -> ApiError:
    message = f"The request has {what}: send less at once."
    return ApiError(400, message, "invalid_value")
