"""The memory's database file, with a full-text index where SQLite has one."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from shepherd.database import DatabaseFile
from shepherd.errors import MemoryStoreError
from shepherd.memory.schema import MIGRATIONS, has_full_text, prepare_index

T = TypeVar("T")

NO_FULL_TEXT = (
    "This Python's SQLite has no full-text search (FTS5): the memory is searched for words as "
    "they are written, and more slowly."
)


class Database:
    """One process's connection to the memory; all calls from one thread.

    `warn` is called in that thread with warnings for the user. With `full_text` False, FTS5 is
    not used.
    """

    def __init__(self, path: Path, warn: Callable[[str], None], *, full_text: bool = True) -> None:
        self.path = path
        self.full_text = full_text
        self._warn = warn
        self._warned_of_full_text = False
        self._file = DatabaseFile(
            path, MIGRATIONS, self._damaged, MemoryStoreError, on_open=self._prepare
        )

    def run(self, work: "Work[T]", *, write: bool = True) -> T:
        """Do `work` in one transaction; a damaged file is renamed and replaced by a new one.

        Raises MemoryStoreError; the transaction is then rolled back.
        """
        return self._file.run(
            lambda connection: work(Handle(connection, full_text=self.full_text)), write=write
        )

    def close(self) -> None:
        """Close the file; the next `run` opens it again."""
        self._file.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self.full_text = self.full_text and has_full_text(connection)
        if self.full_text:
            prepare_index(connection)
        elif not self._warned_of_full_text:
            self._warned_of_full_text = True
            self._warn(NO_FULL_TEXT)

    def _damaged(self, error: Exception, aside: Path) -> None:
        self._warn(f"The memory was damaged ({error}). It begins again; the old file is {aside}")


class Handle:
    """The connection within a transaction, and whether full-text search is available."""

    __slots__ = ("connection", "full_text")

    def __init__(self, connection: sqlite3.Connection, *, full_text: bool) -> None:
        self.connection = connection
        self.full_text = full_text


Work: TypeAlias = Callable[[Handle], T]
