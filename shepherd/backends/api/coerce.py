"""Values of an upstream's JSON as the type that is asked for, and nothing where they are not."""

from typing import Any, cast

from shepherd.messages import JsonObject


def as_flag(value: object) -> bool | None:
    """The value if it is a boolean, else None."""
    return value if isinstance(value, bool) else None


def as_text(value: Any) -> str:
    """The text, "" if it is none."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """The whole number from 0 up, None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_object(value: Any) -> JsonObject:
    """The object, {} if it is none."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The list, [] if it is none."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[JsonObject]:
    """The objects in a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_texts(value: Any) -> list[str]:
    """The texts in a list."""
    return [item for item in as_list(value) if isinstance(item, str)]


def as_error_status(value: Any) -> int:
    """The HTTP status of an error, 500 if it is none."""
    return value if isinstance(value, int) and 400 <= value < 600 else 500
