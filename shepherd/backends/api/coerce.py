"""Coerces values of an upstream's JSON to a type; a wrong value becomes an empty one."""

from typing import Any, cast

from shepherd.messages import JsonObject


def as_flag(value: object) -> bool | None:
    """The value if it is a boolean, else None."""
    return value if isinstance(value, bool) else None


def as_text(value: Any) -> str:
    """The text, or "" if the value is not one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """The integer from 0 up, or None if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_object(value: Any) -> JsonObject:
    """The object, or {} if the value is not one."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The list, or [] if the value is not one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[JsonObject]:
    """The objects in a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_texts(value: Any) -> list[str]:
    """The texts in a list."""
    return [item for item in as_list(value) if isinstance(item, str)]


def as_error_status(value: Any) -> int:
    """The HTTP status of an error, or 500 if the value is not one."""
    return value if isinstance(value, int) and 400 <= value < 600 else 500
