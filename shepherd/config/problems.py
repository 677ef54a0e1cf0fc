"""Describes an invalid value in a sentence."""

from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shepherd.config.fields import aliases, bare_type, expected, unknown_key
from shepherd.config.settings import Config
from shepherd.validation import describe_problem, key_of, nearest


def describe(problem: ErrorDetails) -> str:
    """The sentence for one of pydantic's problems with a Config."""
    location, key = problem["loc"], key_of(problem)
    if len(location) == 1 and problem["type"] not in ("extra_forbidden", "value_error"):
        return f"{key} is a section: write [{key}]"
    field = _field_at(location)
    return describe_problem(
        problem,
        key,
        unknown=_unknown(location, problem["input"]),
        expected=expected(field) if field else "",
        show_value=True,
    )


def _unknown(location: tuple[str | int, ...], value: object) -> str:
    key = ".".join(str(part) for part in location)
    if len(location) > 1:
        return unknown_key(key)
    if isinstance(value, dict):
        guess = nearest(key, Config.model_fields)
        return f"unknown section [{key}]" + (f"; did you mean [{guess}]?" if guess else "")
    return unknown_key(key) + " (settings belong in a section)"


def _field_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    """The field at `location`; None inside a list of plain values."""
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
