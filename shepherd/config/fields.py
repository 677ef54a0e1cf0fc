"""Describes the values that a setting accepts, for errors and the reference, and parses text."""

import json
from enum import StrEnum
from types import NoneType
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from shepherd.config.settings import Config
from shepherd.errors import ConfigError
from shepherd.validation import nearest

_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def all_fields() -> dict[str, FieldInfo]:
    """Every setting as `section.key`, in the order of the sections."""
    return {
        f"{name}.{key}": field
        for name, section in Config.model_fields.items()
        for key, field in section_class(section).model_fields.items()
    }


def section_class(section: FieldInfo) -> type[BaseModel]:
    """The pydantic model of one of Config's fields."""
    annotation = section.annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise TypeError(f"not a section: {annotation!r}")
    return annotation


def aliases(field: FieldInfo) -> list[str]:
    """All names of the field in a settings file, except the first."""
    alias = field.validation_alias
    return [str(c) for c in alias.choices[1:]] if isinstance(alias, AliasChoices) else []


def first_name(key: str) -> str:
    """`section.key` with the setting's first name if `key` uses another one; else `key`."""
    section, _, name = key.partition(".")
    in_section = ((k, f) for k, f in all_fields().items() if k.startswith(f"{section}."))
    return next((k for k, field in in_section if name in aliases(field)), key)


def bare_type(field: FieldInfo) -> object:
    """The field's type without `| None`."""
    present = [a for a in get_args(field.annotation) if a is not NoneType]
    optional = NoneType in get_args(field.annotation)
    return present[0] if optional else field.annotation


def allowed_words(kind: object) -> list[str]:
    """The allowed texts of a value of this type, [] if any value is allowed."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [word.value for word in kind]
    return [str(word) for word in get_args(kind)] if get_origin(kind) is Literal else []


def expected(field: FieldInfo) -> str:
    """A description of the field's valid values: `a whole number from 0 to 65535`."""
    kind = bare_type(field)
    low = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    if low is not None:
        return f"{_kind_in_words(kind)} from {low} to {high}"
    has_length = any(isinstance(m, MinLen) for m in field.metadata)
    return "a text that is not empty" if has_length else _kind_in_words(kind)


def _kind_in_words(kind: object) -> str:
    if words := allowed_words(kind):
        return "one of " + ", ".join(json.dumps(word) for word in words)
    if get_origin(kind) is list:
        return "a list of texts" if get_args(kind)[0] is str else "an array of tables"
    return _PLAIN[kind] if isinstance(kind, type) and kind in _PLAIN else "a table"


def parse_text(key: str, text: str) -> object:
    """The value of `text` from a variable or the command line.

    Texts are used unchanged; other types are parsed as TOML. A value of the wrong type is returned
    unchanged, and validation reports it. Raises ConfigError if there is no setting called `key`.
    """
    field = all_fields().get(key)
    if field is None:
        raise ConfigError(unknown_key(key))
    kind = bare_type(field)
    if kind is str or allowed_words(kind):
        return text
    if kind is bool:
        return parse_bool(text)
    if kind == list[str] and not text.lstrip().startswith("["):
        return [text]
    return _toml_value(text)


def parse_bool(text: str) -> bool | str:
    """True or False for a word that means it, else the text."""
    word = text.lower()
    return word in _TRUE if word in _TRUE + _FALSE else text


def _toml_value(text: str) -> object:
    import tomllib

    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def unknown_key(key: str) -> str:
    """A message that there is no setting `key`, with the most similar one."""
    fields = all_fields()
    by_last_part = {name.partition(".")[2]: name for name in fields}
    last = key.rpartition(".")[2]
    guess = by_last_part.get(last) or nearest(key, fields)
    return f"unknown setting {key}" + (f"; did you mean {guess}?" if guess else "")
