"""JSON by pydantic's parser and writer, and by Python's own where those refuse what it takes.

They are two to four times as fast, keep whole numbers of any size, and know `NaN` as Python does;
they refuse half letters (`"\\ud83d"`), of which some servers make whole ones, and deep nesting.
"""

import json

from pydantic_core import from_json, to_json


def read(text: bytes) -> object:
    """The value, with U+FFFD for what is no UTF-8; raises ValueError and RecursionError."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text.decode("utf-8", "replace"))


def write(value: object) -> bytes:
    """The value as JSON in UTF-8, without blanks; a half letter becomes a question mark.

    Raises ValueError for what contains itself, RecursionError for what is nested too deeply.
    """
    try:
        return to_json(value, inf_nan_mode="constants")
    except ValueError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def written(value: object) -> str:
    """The value as JSON, without blanks; raises ValueError for what JSON has not."""
    text = to_json(value, inf_nan_mode="constants").decode()
    if "NaN" in text or "Infinity" in text:
        json.dumps(value, allow_nan=False)
    return text
