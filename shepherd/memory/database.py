"""The database file: opened at the first use, renamed if it is damaged."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, TypeVar

from shepherd.config.files import exclusive, make_private_directory
from shepherd.errors import MemoryStoreError
from shepherd.memory.schema import VERSION, has_full_text, prepare, prepare_index, version

T = TypeVar("T")

BUSY_SECONDS = 30.0
"""How long a write waits for other processes; SQLite does not serve them in order."""

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
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, work: "Work[T]", *, write: bool = True) -> T:
        """Do `work` in one transaction; a damaged file is renamed and replaced by a new one.

        Raises MemoryStoreError; the transaction is then rolled back.
        """
        try:
            try:
                return self._attempt(work, write=write)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._set_aside(error)
                return self._attempt(work, write=write)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise MemoryStoreError(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Close the file; the next `run` opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # a damaged file; there is nothing left to lose
                connection.close()

    def _attempt(self, work: "Work[T]", *, write: bool) -> T:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            result = work(Handle(connection, full_text=self.full_text))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._identity != _identity(self.path):
            self.close()  # the file was deleted, or another process has moved it aside
        if self._connection is None:
            with exclusive(self.path):
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        make_private_directory(self.path.parent)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's own would be 0644
        self._identity = _identity(self.path)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if version(connection) > VERSION:
            raise MemoryStoreError(
                f"{self.path}: written by a newer Shepherd (format {version(connection)})"
            )
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}")
        prepare(connection)
        self.full_text = self.full_text and has_full_text(connection)
        if self.full_text:
            prepare_index(connection)
        elif not self._warned_of_full_text:
            self._warned_of_full_text = True
            self._warn(NO_FULL_TEXT)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the file, unless another process already did."""
        self.close()
        with exclusive(self.path):
            if self._identity != _identity(self.path):
                return
            stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                extra = self.path.with_name(self.path.name + suffix)
                if extra.exists():
                    extra.rename(aside.with_name(aside.name + suffix))
        self._warn(f"The memory was damaged ({error}). It begins afresh; the old file is {aside}")


class Handle:
    """The connection within a transaction, and whether full-text search is available."""

    __slots__ = ("connection", "full_text")

    def __init__(self, connection: sqlite3.Connection, *, full_text: bool) -> None:
        self.connection = connection
        self.full_text = full_text


Work: TypeAlias = Callable[[Handle], T]


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        result = path.stat()
    except FileNotFoundError:
        return None
    return result.st_dev, result.st_ino
