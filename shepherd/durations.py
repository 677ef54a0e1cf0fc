"""Lengths of time as Ollama writes them: seconds, or a text such as `5m`."""

import math
import re

FOREVER = math.inf
"""No limit; any negative length means it."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(ns|us|µs|ms|s|m|h)")
_SECONDS = re.compile(r"[+-]?\d{1,12}(?:\.\d{0,9})?")
_MAX_CHARACTERS = 64


def parse_duration(value: object) -> float:
    """Seconds; FOREVER for a negative length. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be seconds, or a text such as 5m")
    if isinstance(value, str):
        return _parse_text(value.strip())
    try:
        seconds = float(value)
    except OverflowError:
        seconds = FOREVER if value > 0 else -1.0
    if math.isnan(seconds):
        raise ValueError("must be a number of seconds")
    return FOREVER if seconds < 0 else seconds


def _parse_text(text: str) -> float:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError("is too long for a length of time")
    if _SECONDS.fullmatch(text):
        return parse_duration(float(text))
    is_negative, rest = text.startswith("-"), text.lstrip("+-")
    if len(text) - len(rest) > 1 or not rest or _PART.sub("", rest):
        raise ValueError("must be seconds, or a text such as 5m, 1h30m, 0 or -1")
    if is_negative:
        return FOREVER
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(rest))
