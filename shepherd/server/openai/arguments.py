"""Tool-call arguments in history: whatever a client replays becomes an object."""

from typing import cast

from shepherd.backends.output.calls.repair import loads, repair_json
from shepherd.messages import JsonObject

_MAX_NESTING = 3
_MAX_PARSED = 256 * 1024
_MAX_REPAIRED = 16 * 1024


def arguments_object(arguments: object) -> JsonObject:
    """The arguments as an object; text that can't be repaired is kept under `_raw`.

    Bad arguments are never refused: one bad call must not break every later request of its
    conversation.
    """
    value = arguments
    for _ in range(_MAX_NESTING):  # a string in a string: encoded more than once
        if not isinstance(value, str):
            break
        value = _parse(value)
    if value is None:
        return {}
    if isinstance(value, dict):
        return cast(JsonObject, value)
    return {"_raw": arguments}


def _parse(text: str) -> object:
    """The JSON in `text`, repaired if need be; False if it is not JSON.

    Other requests wait for this, so long texts are not repaired, and longer ones not parsed.
    """
    if len(text) > _MAX_PARSED:
        return False
    if not text.strip():
        return {}
    try:
        return loads(text)
    except ValueError:
        if len(text) > _MAX_REPAIRED:
            return False
    try:
        return repair_json(text, close_string=True)
    except ValueError:
        return False
