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
    except OverflowError:  # a whole number beyond the range of floats, of either sign
        return FOREVER
    if math.isnan(seconds):
        raise ValueError("must be a number of seconds")
    return FOREVER if seconds < 0 else seconds


def _parse_text(text: str) -> float:
    """The seconds of `90`, `-1`, `1h30m` or `.5s`; raises ValueError."""
    if len(text) > _MAX_CHARACTERS:
        raise ValueError("is too long for a length of time")
    if _SECONDS.fullmatch(text):
        return parse_duration(float(text))
    unsigned = text.lstrip("+-")
    signs = len(text) - len(unsigned)
    has_other_parts = bool(_PART.sub("", unsigned))
    if signs > 1 or not unsigned or has_other_parts:
        raise ValueError("must be seconds, or a text such as 5m, 1h30m, 0 or -1")
    if text.startswith("-"):
        return FOREVER
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(unsigned))
