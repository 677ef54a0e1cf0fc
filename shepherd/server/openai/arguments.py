"""Tool-call arguments in history: whatever a client replays becomes an object."""

import json
from typing import Any, cast

from shepherd.messages import JsonObject

_MAX_NESTING = 3
_MAX_PARSED = 256 * 1024
_MAX_REPAIRED = 16 * 1024


def arguments_object(given: object) -> JsonObject:
    """The arguments as an object; what can't be repaired is kept under `_raw`, never refused.

    One bad call that a model once made must not break every later request of its conversation.
    """
    value = given
    for _ in range(_MAX_NESTING):  # a string in a string: encoded more than once
        if not isinstance(value, str):
            break
        value = _parse(value)
    if value is None:
        return {}
    if isinstance(value, dict):
        return cast(JsonObject, value)
    return {"_raw": given}


def _parse(text: str) -> object:
    """The JSON in `text`; cut-off JSON is closed, no JSON gives an unusable value.

    Long texts are not repaired, and longer ones not parsed: others wait for that.
    """
    if len(text) > _MAX_PARSED:
        return False
    if not text.strip():
        return {}
    for candidate in (text, text + _closers(text)) if len(text) <= _MAX_REPAIRED else (text,):
        try:
            parsed: object = json.loads(candidate, strict=False, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
        return parsed
    return False


def _closers(text: str) -> str:
    """What is missing at the end of JSON that was cut off."""
    open_brackets: list[str] = []
    in_string = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif in_string:
            escaped, in_string = char == "\\", char != '"'
        elif char == '"':
            in_string = True
        elif char in "{[":
            open_brackets.append("}" if char == "{" else "]")
        elif char in "}]" and open_brackets:
            open_brackets.pop()
    return ('"' if in_string else "") + "".join(reversed(open_brackets))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
