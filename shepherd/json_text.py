"""JSON by pydantic's reader and writer, with Python's own as a fallback; server-sent events.

Pydantic's are two to five times as fast, keep whole numbers of any size, and know `NaN` as Python
does. They refuse surrogates (`"\\ud83d"`), which some servers and models send, and deep nesting.
What is written is compact and valid UTF-8.

The functions called `as_…` read values of others' JSON: one of a wrong type becomes an empty one.
"""

import json
import math
from typing import Any, cast

import pydantic_core

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

MAX_DEPTH = 100
"""Nested objects and lists; more are never intended."""


def read_json(text: bytes) -> object:
    """The value, with U+FFFD for invalid UTF-8; raises ValueError and RecursionError."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:  # Python reads surrogates, too, or raises an error of its own
        return json.loads(text.decode("utf-8", "replace"))


def object_in(text: str | bytes) -> dict[str, Any]:
    """The object that a text is; {} for other texts, and for one that is nested too deep."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    try:
        value = as_object(read_json(data))
    except (ValueError, RecursionError):
        return {}
    return {} if too_deep(data, value) else value


def to_json(data: object) -> str:
    """The JSON text; a lone surrogate, which a model can write, becomes a question mark.

    Unicode's line breaks are escaped, because readers of event streams split at them. Raises
    ValueError for a number that JSON does not allow.
    """
    try:
        text = strict_json(data)
    except ValueError:  # Python decides on surrogates and on data that can't be written
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode().translate(_LINE_BREAKS)


def json_bytes(value: object) -> bytes:
    """The value as JSON in UTF-8, without spaces; a surrogate becomes a question mark.

    Raises ValueError for a value that contains itself, RecursionError for one that is nested too
    deeply.
    """
    try:
        return pydantic_core.to_json(value, inf_nan_mode="constants")
    except ValueError:  # a surrogate, or a value of which Python says what is wrong
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def strict_json(value: object) -> str:
    """The value as JSON, without spaces; raises ValueError for a value that JSON does not allow."""
    text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
    if "NaN" in text or "Infinity" in text:  # a number, or only a word in a text
        json.dumps(value, allow_nan=False)  # raises ValueError for a number
    return text


def frame(data: object, event: str = "", id: str = "") -> str:
    """One server-sent event, with its name and id if there are any; a string is sent unchanged."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return f"{head}data: {data if isinstance(data, str) else to_json(data)}\n\n"


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


def too_deep(text: str | bytes, value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether the value, whose JSON is `text`, has more than `depth` objects and lists in a row."""
    # cheap tests first: nesting takes brackets, and each is closed
    if len(text) <= 2 * depth or _openings(text) <= depth:
        return False
    level: list[Any] = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _openings(text: str | bytes) -> int:
    """How many brackets open, those in strings included."""
    if isinstance(text, bytes):
        return text.count(b"{") + text.count(b"[")
    return text.count("{") + text.count("[")


def _inside(value: Any) -> list[Any]:
    """The objects and lists in it."""
    inner = [*as_object(value).values(), *as_list(value)]
    return [item for item in inner if isinstance(item, dict | list)]


def as_flag(value: object) -> bool | None:
    """The value if it is a boolean, else None."""
    return value if isinstance(value, bool) else None


def as_text(value: Any) -> str:
    """The text, or "" if the value is not one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """The integer from 0 up, or None if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_object(value: Any) -> dict[str, Any]:
    """The object, or {} if the value is not one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The list, or [] if the value is not one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_texts(value: Any) -> list[str]:
    """The texts in a list."""
    return [item for item in as_list(value) if isinstance(item, str)]


def referenced(root: Any, reference: str) -> Any:
    """The part of a JSON schema that "#/$defs/Point", say, names; None without one.

    Nothing is fetched for a reference to another file, and names of an `$anchor` are not searched.
    """
    if reference != "#" and not reference.startswith("#/"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        # the two characters that a name can't have in a pointer
        node = as_object(node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def as_error_status(value: Any) -> int:
    """The HTTP status of an error, or 500 if the value is not one."""
    return value if isinstance(value, int) and 400 <= value < 600 else 500
