"""Statements of SQLite in the form of psycopg, and its errors in one line."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, LiteralString, cast

from shepherd.storage.rows import Values

_PLACE = re.compile(r"\?|%|(?<![:\w]):([a-z_]+)")
_NUL, _VISIBLE_NUL = "\x00", "\N{SYMBOL FOR NULL}"


@lru_cache(maxsize=256)
def translated(statement: str) -> LiteralString:
    """A statement with `?` or `:name` for its values, as psycopg wants it.

    It is literal in the sense of psycopg: values never become parts of statements.
    """
    return cast(LiteralString, _PLACE.sub(_placeholder, statement))


def _placeholder(match: re.Match[str]) -> str:
    if match[1]:
        return f"%({match[1]})s"
    return "%%" if match[0] == "%" else "%s"


def storable(values: Values) -> Sequence[Any] | Mapping[str, Any]:
    """Values without characters that PostgreSQL can't store, which then match no other text."""
    if isinstance(values, Mapping):
        return {name: _storable(value) for name, value in values.items()}
    return [_storable(value) for value in values]


def _storable(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = value.replace(_NUL, _VISIBLE_NUL)
    return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else value


def one_line(error: Exception) -> str:
    """The message of an error of psycopg, which can have several lines."""
    return " ".join(str(error).split()) or type(error).__name__
