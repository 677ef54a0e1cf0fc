"""Values that are nested too deeply for what works through them."""

from typing import Any, cast

DEEPEST = 100
"""Objects and lists within each other; nobody means more."""


def too_deep(text: str | bytes, value: Any) -> bool:
    """Whether the value, whose JSON is `text`, is nested deeper than `DEEPEST`."""
    if len(text) <= 2 * DEEPEST or _openings(text) <= DEEPEST:
        return False
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _openings(text: str | bytes) -> int:
    if isinstance(text, bytes):
        return text.count(b"{") + text.count(b"[")
    return text.count("{") + text.count("[")


def _inside(value: Any) -> list[Any]:
    """The objects and lists in it."""
    if isinstance(value, dict):
        inner = list(cast(dict[str, Any], value).values())
    else:
        inner = cast(list[Any], value) if isinstance(value, list) else []
    return [one for one in inner if isinstance(one, dict | list)]
