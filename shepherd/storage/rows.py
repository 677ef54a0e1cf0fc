"""What the stores of a server need of a database: an SQLite file, or PostgreSQL.

Statements have `?` or `:name` in place of values, and are SQL that both databases understand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, LiteralString, Protocol, TypeAlias, TypeVar, cast

T = TypeVar("T")

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """The rows of a result."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement has changed; known after its transaction."""
        ...

    def fetchone(self) -> Any:
        """The next row, None after the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that remain."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Rows(Protocol):
    """The tables within one transaction; an `sqlite3.Connection` is one."""

    def execute(self, statement: str, values: Values = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Values], /) -> object:
        """Run one statement for each of the values."""
        ...


class Database(Protocol):
    """The tables of one store; a `DatabaseFile` is one."""

    def run(self, work: Callable[[Rows], T], *, write: bool = True) -> T:
        """Do `work` in one transaction; it may run again after a failure.

        Without `write`, `work` only reads, or is one statement. Raises the error of the store.
        """
        ...

    def close(self) -> None:
        """Close the connection of this store; the next `run` opens it again."""


def close_garbage(thread: ThreadPoolExecutor, database: Database) -> None:
    """End the thread of a store that is garbage, which has no work any more; close its database.

    This can run within any `submit`, when garbage is collected there: it must not submit anything,
    because all thread pools share one lock for that.
    """
    thread.shutdown(wait=False)
    database.close()


_PLACE = re.compile(r"\?|%|(?<![:\w]):(?P<name>[a-z_]+)")
_NUL, _VISIBLE_NUL = "\x00", "\N{SYMBOL FOR NULL}"


@lru_cache(maxsize=256)
def translated(statement: str) -> LiteralString:
    """A statement with `?` or `:name` for its values, as psycopg wants it.

    It is literal in the sense of psycopg: values never become parts of statements.
    """
    return cast(LiteralString, _PLACE.sub(_placeholder, statement))


def _placeholder(match: re.Match[str]) -> str:
    """What psycopg wants for "?", ":name" or a plain "%"."""
    if match["name"]:
        return f"%({match['name']})s"
    return "%%" if match[0] == "%" else "%s"


def storable(values: Values) -> Sequence[Any] | Mapping[str, Any]:
    """Values without characters that PostgreSQL can't store, which then match no other text."""
    if isinstance(values, Mapping):
        return {name: _storable(value) for name, value in values.items()}
    return [_storable(value) for value in values]


def _storable(value: Any) -> Any:
    """A value without NUL and surrogates, which PostgreSQL refuses in a text."""
    if not isinstance(value, str):
        return value
    value = value.replace(_NUL, _VISIBLE_NUL)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def one_line(error: Exception) -> str:
    """The message of an error of psycopg, which can have several lines."""
    return " ".join(str(error).split()) or type(error).__name__
