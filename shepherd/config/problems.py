"""What is wrong with a value, in a sentence."""

import json
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shepherd.config.fields import aliases, bare_type, expected, nearest, unknown_key
from shepherd.config.settings import Config


def describe(problem: ErrorDetails) -> str:
    """The sentence for one of pydantic's problems with a Config."""
    location = problem["loc"]
    key = ".".join(str(part) for part in location)
    if problem["type"] == "extra_forbidden":
        return _unknown(location, problem["input"])
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] in ("value_error", "string_pattern_mismatch"):
        return f"{key}: " + problem["msg"].removeprefix("Value error, ")
    if len(location) == 1:
        return f"{key} is a section: write [{key}]"
    field = _field_at(location)
    wanted = expected(field) if field else problem["msg"].removeprefix("Input should be ")
    return f"{key} must be {wanted}, got {_shown(problem['input'])}"


def _unknown(location: tuple[str | int, ...], value: object) -> str:
    key = ".".join(str(part) for part in location)
    if len(location) > 1:
        return unknown_key(key)
    if isinstance(value, dict):
        guess = nearest(key, Config.model_fields)
        return f"unknown section [{key}]" + (f"; did you mean [{guess}]?" if guess else "")
    return unknown_key(key) + " (settings belong in a section)"


def _field_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    """The field at `location`; None inside of lists of plain values."""
    model: type[BaseModel] = Config
    field: FieldInfo | None = None
    for part in location:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part) or _by_alias(model, part)
        if field is None:
            return None
        model = _inner_model(field) or model
    return field if not isinstance(location[-1], int) else None


def _by_alias(model: type[BaseModel], name: str) -> FieldInfo | None:
    return next((f for f in model.model_fields.values() if name in aliases(f)), None)


def _inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section, or of a list's items."""
    kind = bare_type(field)
    inner = next(iter(get_args(kind)), kind)
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _shown(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
