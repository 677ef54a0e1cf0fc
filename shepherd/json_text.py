"""JSON output and server-sent events: compact, valid UTF-8, on one line."""

import json
import math
from typing import Any, cast

import pydantic_core

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def to_json(data: object) -> str:
    """The JSON text; a lone surrogate, which a model can write, becomes a question mark.

    Unicode's line breaks are escaped, because readers of event streams split at them. Raises
    ValueError for a number that JSON does not allow.
    """
    text = _written(data)
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode().translate(_LINE_BREAKS)


def _written(data: object) -> str:
    """The text of pydantic's writer, which takes a fifth of the time, or of Python's own.

    Python's decides on surrogates, on data that can't be written, and on numbers like NaN.
    """
    try:
        text = pydantic_core.to_json(data, inf_nan_mode="constants").decode()
    except ValueError:
        return _ENCODER.encode(data)
    return _ENCODER.encode(data) if "NaN" in text or "Infinity" in text else text


def is_finite(value: object) -> bool:
    """Whether a value can be JSON: no number in it is infinite, or none at all (NaN)."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += cast(dict[str, Any], item).values()
        elif isinstance(item, list):
            pending += cast(list[Any], item)
        elif isinstance(item, float) and not math.isfinite(item):
            return False
    return True


def frame(data: object, event: str = "", id: str = "") -> str:
    """One server-sent event, with its name and id if there are any; a string is sent unchanged."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return f"{head}data: {data if isinstance(data, str) else to_json(data)}\n\n"
