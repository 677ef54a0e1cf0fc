"""Makes records of data that may be wrong."""

from typing import TYPE_CHECKING, Any, TypeVar, cast

from shepherd.records.plain import NotPlainError, plain_record
from shepherd.records.record import Record, fields_of
from shepherd.validation import describe_problem, key_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

R = TypeVar("R", bound=Record)
M = TypeVar("M", bound="BaseModel")


class InvalidRecordError(Exception):
    """Data that can't become a record; `problems` are pydantic's."""

    def __init__(self, problems: "list[ErrorDetails]") -> None:
        super().__init__("; ".join(describe_problem(p, key_of(p)) for p in problems))
        self.problems = problems


def checked(kind: type[R], data: object) -> R:
    """The record of `data`; raises InvalidRecordError with everything that is wrong."""
    try:
        return plain_record(kind, data)
    except NotPlainError:
        from shepherd.records.model import model_of, record_of
    return record_of(kind, checked_model(model_of(kind), data))


def checked_model(kind: type[M], data: object) -> M:
    """The pydantic model of `data`; raises InvalidRecordError as `checked` does."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise InvalidRecordError(error.errors(include_url=False)) from error


def as_data(record: Record, *, changes_only: bool = False) -> dict[str, Any]:
    """The stored values of a record as plain data; with `changes_only`, those unlike a default."""
    return {
        name: _data(value, changes_only=changes_only)
        for name, field in fields_of(type(record)).items()
        if field.rule.in_data
        for value in [getattr(record, name)]
        if not (changes_only and value == field.default)
    }


def _data(value: Any, *, changes_only: bool) -> Any:
    if isinstance(value, Record):
        return as_data(value, changes_only=changes_only)
    if isinstance(value, list | tuple):
        return [_data(item, changes_only=changes_only) for item in cast(list[Any], value)]
    return dict(cast(dict[str, Any], value)) if isinstance(value, dict) else value
