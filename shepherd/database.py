"""SQLite files of this user: opened at the first use, renamed if they are damaged."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from shepherd.config.files import exclusive, make_private_directory
from shepherd.errors import ShepherdError

T = TypeVar("T")

BUSY_SECONDS = 30.0
"""The time that a write waits for other processes; SQLite does not serve them in order."""


class DatabaseFile(Struct, eq=False):
    """One process's connection to the file at `path`; all calls from one thread.

    `migrations` are the statements from each version to the next; a file of a higher version is
    not opened. `on_damage` receives the error and the new path of a renamed file. `failure` is the
    error for an unusable file. `on_open` receives each new connection.
    """

    path: Path
    migrations: Sequence[str]
    on_damage: Callable[[Exception, Path], None]
    failure: type[ShepherdError]
    on_open: Callable[[sqlite3.Connection], None] = lambda _connection: None
    _connection: sqlite3.Connection | None = None
    # of the file that the connection is to
    _identity: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Do `work` in one transaction; a damaged file is renamed and replaced by a new one.

        Raises `failure`; the transaction is then rolled back. All that write wait for each other.
        """
        try:
            try:
                return self._attempt(work, write=write)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._set_aside(error)
                return self._attempt(work, write=write)  # in a new file
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise self.failure(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Close the file; the next `run` opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # a damaged file, which is replaced anyway
                connection.close()

    def _attempt(self, work: Callable[[sqlite3.Connection], T], *, write: bool) -> T:
        """Do `work` in one transaction."""
        connection = self._opened()
        # a transaction that writes waits here for others; later it could only fail
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now."""
        if self._connection is not None and self._identity != _identity(self.path):
            self.close()  # the file was deleted, or another process has moved it aside
        if self._connection is None:
            with exclusive(self.path):  # only one process makes the tables
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        """A new connection to the file, which is made if there is none."""
        make_private_directory(self.path.parent)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would use 0644
        self._identity = _identity(self.path)
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,  # garbage is closed by the thread that finds it
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Bring the tables to the present version; raises `failure` for a later one."""
        version = _version(connection)
        if version > len(self.migrations):
            raise self.failure(f"{self.path}: written by a newer Shepherd (format {version})")
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}")
        for number in range(version, len(self.migrations)):
            update = f"PRAGMA user_version = {number + 1}"
            connection.executescript(f"BEGIN;{self.migrations[number]};{update};COMMIT;")
        self.on_open(connection)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the file, unless another process already did."""
        self.close()
        with exclusive(self.path):
            if self._identity != _identity(self.path):
                return  # there is a new file already
            stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):  # SQLite would take them for those of the new file
                extra = self.path.with_name(self.path.name + suffix)
                if extra.exists():
                    extra.rename(aside.with_name(aside.name + suffix))
        self.on_damage(error, aside)


class MemoryDatabase:
    """Tables that are forgotten at the end of the process; all calls from one thread."""

    def __init__(self, migrations: Sequence[str]) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        for statements in migrations:
            self._connection.executescript(statements)

    def run(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Do `work` in one transaction, which an error undoes."""
        with self._connection:
            return work(self._connection)

    def close(self) -> None:
        """Forget the tables."""
        self._connection.close()


def _version(connection: sqlite3.Connection) -> int:
    """The version of the existing tables; 0 in a new file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is broken; a full disk, say, is not mended by a new file."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of extended codes
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one at the same path; None without a file."""
    try:
        result = path.stat()
    except FileNotFoundError:
        return None
    return result.st_dev, result.st_ino
