"""Records of data that is valid at first sight, as most is; pydantic checks the rest.

The import of pydantic takes a fifth of the time to the first answer. What this module accepts,
pydantic accepts with the same result. What it refuses may still be valid.
"""

from collections.abc import Sized
from enum import StrEnum
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from shepherd.records.record import Field, Record, fields_of, kind_of, rule_of

R = TypeVar("R", bound=Record)
_UNIONS = (Union, UnionType)


class NotPlainError(Exception):
    """The data may be invalid."""


def plain_record(kind: type[R], data: object) -> R:
    """The record of `data`; raises NotPlainError unless all of it is valid at first sight."""
    if type(data) is not dict:
        raise NotPlainError
    table, fields = cast(dict[str, object], data), fields_of(kind)
    if not table.keys() <= fields.keys():
        raise NotPlainError
    if any(field.is_required and name not in table for name, field in fields.items()):
        raise NotPlainError
    values = {
        name: _value(fields[name].kind, fields[name].rule, value) for name, value in table.items()
    }
    record = kind(**values)
    _accept(record.check)
    return record


def _value(kind: Any, rule: Field, value: Any) -> Any:
    """The value if it is one of `kind` and fits the rule; a float if an integer stands for it."""
    if rule.before or rule.pattern or rule.strip:
        raise NotPlainError
    result = _typed(kind, rule, value)
    _fit(rule, result)
    return _accept(rule.after, result) if rule.after else result


def _typed(kind: Any, rule: Field, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in _UNIONS:
        return _one_of(get_args(kind), rule, value)
    if origin in (list, tuple) and type(value) is list:
        item = get_args(kind)[0]
        items = cast(list[Any], value)
        checked = [_value(kind_of(item), rule_of(item), one) for one in items]
        return checked if origin is list else tuple(checked)
    if origin is dict and type(value) is dict:
        key, item = get_args(kind)
        pairs = cast(dict[Any, Any], value).items()
        return {_typed(key, rule, k): _typed(item, rule, v) for k, v in pairs}
    if origin is Literal:
        _require(type(value) is str and value in get_args(kind))
        return value
    return _of_class(kind, rule, value) if isinstance(kind, type) else _refuse()


def _one_of(kinds: tuple[Any, ...], rule: Field, value: Any) -> Any:
    """A value of one of the types; pydantic decides if several, or none, have its own type."""
    if value is None:
        _require(NoneType in kinds)
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) > 1:
        others = [kind for kind in others if (get_origin(kind) or kind) is type(value)]
    _require(len(others) == 1)
    return _typed(others[0], rule, value)


def _of_class(kind: type, rule: Field, value: Any) -> Any:
    if issubclass(kind, Record):
        return plain_record(kind, value)
    if issubclass(kind, StrEnum):
        is_word = rule.strict is False and type(value) is str
        _require(type(value) is kind or (is_word and value in [word.value for word in kind]))
        return kind(value)
    if kind is float and type(value) is int:
        _require(abs(value) < 2**53)
        return float(value)
    _require(kind in (bool, int, float, str) and type(value) is kind)
    _require(not isinstance(value, float) or isfinite(value))
    _require(not isinstance(value, str) or _is_unicode(value))
    return value


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, as one that stands for an invalid byte."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _fit(rule: Field, value: Any) -> None:
    if isinstance(value, str | list | tuple):
        size = len(cast(Sized, value))
        _require(rule.min_length is None or size >= rule.min_length)
        _require(rule.max_length is None or size <= rule.max_length)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _require(rule.ge is None or value >= rule.ge)
        _require(rule.gt is None or value > rule.gt)
        _require(rule.le is None or value <= rule.le)


def _accept(check: Any, *values: Any) -> Any:
    try:
        return check(*values)
    except ValueError as error:
        raise NotPlainError from error


def _require(fits: bool) -> None:  # noqa: FBT001 - reads as a sentence
    if not fits:
        raise NotPlainError


def _refuse() -> Any:
    raise NotPlainError
