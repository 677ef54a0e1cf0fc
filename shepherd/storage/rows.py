"""What the stores of a server need of a database: an SQLite file, or PostgreSQL.

Statements have `?` or `:name` in place of values, and are SQL that both databases understand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """The rows of a result."""

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

    def run(
        self, work: Callable[[Rows], T], *, write: bool = True, lock: str = "", once: str = ""
    ) -> T:
        """Do `work` in one transaction; it may run again after a failure.

        Of transactions with the same `lock`, one runs at a time. A further call with the same
        `once` does nothing if an earlier one was committed, even where that one has failed because
        nobody could tell; it then returns None. Raises the error of the store.
        """
        ...

    def close(self) -> None:
        """Close the connection of this store; the next `run` opens it again."""
        ...
