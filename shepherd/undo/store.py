"""The states of files and the changes to them, in one SQLite file of the user."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from shepherd import database, errors

DAY = 86_400 * 10**9
"""In nanoseconds, like all times of the store."""

FREED_SHARE = 8
"""A store over its limit frees an eighth of it, so that the next time comes late."""

REDO_BYTES = 64 << 20

MIGRATIONS = (
    """
    CREATE TABLE objects (digest TEXT PRIMARY KEY, data BLOB NOT NULL, bytes INTEGER NOT NULL,
                          used INTEGER NOT NULL);
    CREATE INDEX objects_by_use ON objects (used, bytes);
    CREATE TABLE uses (session TEXT, digest TEXT, PRIMARY KEY (session, digest)) WITHOUT ROWID;
    CREATE TABLE changes (session TEXT, number INTEGER, at INTEGER, kind TEXT, label TEXT,
                          time INTEGER, entries TEXT, finished INTEGER,
                          PRIMARY KEY (session, number)) WITHOUT ROWID;
    """,
)


_CHANGES = (
    "SELECT number, at, kind, label, entries, finished, time FROM changes WHERE session = ? "
    "ORDER BY number"
)


class Kind(StrEnum):
    """What is at a path; UNKEPT is something whose content is not stored."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    UNKEPT = "unkept"


@dataclass(frozen=True, slots=True)
class FileState:
    """A path at one moment; equal states have equal content and mode.

    `detail` is the digest of a file, the target of a link, or the `marks` of an unkept file: its
    size and times. `why` gives the reason for UNKEPT. `owner` is the user's and the group's number.
    """

    kind: Kind
    mode: int = 0
    detail: str = ""
    why: str = field(default="", compare=False)
    owner: tuple[int, int] | None = field(default=None, compare=False)
    marks: str = field(default="", compare=False)  # only of a present file

    def is_still(self, expected: "FileState") -> bool:
        """Whether this present state is the expected one, whose content need not be kept."""
        is_unkept = expected.kind is Kind.UNKEPT and expected.mode == self.mode
        return self == expected or (is_unkept and expected.detail == self.marks)

    def to_json(self) -> list[object]:
        """The state as a JSON array; `_state_from_json` is the inverse."""
        return [self.kind.value, self.mode, self.detail, self.why, self.owner]


ABSENT = FileState(Kind.ABSENT)


class Entry(Struct, frozen=True):
    """One path of a change, before and after it."""

    path: str
    before: FileState
    after: FileState


def entries_to_json(entries: tuple[Entry, ...]) -> str:
    """The entries as ASCII text, which also holds names that are not Unicode."""
    return json.dumps([[e.path, e.before.to_json(), e.after.to_json()] for e in entries])


def entries_from_json(text: str) -> tuple[Entry, ...]:
    """The inverse of `entries_to_json`."""
    rows = json.loads(text)
    return tuple(
        Entry(str(path), _state_from_json(old), _state_from_json(new)) for path, old, new in rows
    )


def _state_from_json(data: list[Any]) -> FileState:
    kind, mode, detail, why, owner = data
    return FileState(Kind(kind), int(mode), str(detail), str(why), tuple(owner) if owner else None)


class UndoLimits(Struct, frozen=True):
    """The limits of the store in bytes and days; `file_bytes` is the size of the largest file.

    `command_bytes` limits what is kept before a command runs; 0 means that commands are not
    watched. They are not watched either where the directory has more than `command_entries`.
    """

    max_bytes: int = 512 << 20
    max_days: int = 30
    file_bytes: int = 64 << 20
    command_bytes: int = 64 << 20
    command_entries: int = 5_000

    @property
    def call_bytes(self) -> int:
        """The limit of what is kept before one call; more would push out its own beginning."""
        return self.max_bytes - self.max_bytes // FREED_SHARE

    @property
    def redo_bytes(self) -> int:
        """The limit of what is kept after one call, so that it can be made again."""
        return min(REDO_BYTES, self.max_bytes // FREED_SHARE)


class ChangeKind(StrEnum):
    """The cause of a change: a tool, the user's way back or forth, or a move to a message.

    A COMMAND is a tool that may change more than it names.
    """

    TOOL = "tool"
    COMMAND = "command"
    UNDO = "undo"
    REDO = "redo"
    MOVE = "move"


class Change(Struct, frozen=True):
    """Paths that changed together.

    `at` is the number of the session's next message. `label` describes the cause for the user. An
    unfinished change belongs to a call that runs, or to a program that was killed; its states after
    it are not known. `time` is that of its last writing, in nanoseconds.
    """

    number: int
    at: int
    kind: ChangeKind
    label: str
    entries: tuple[Entry, ...] = ()
    finished: bool = True
    time: int = 0


class UndoStore:
    """Contents by digest, and the changes of each session; all calls from one thread.

    `warn` receives a sentence if the file is damaged. Raises UndoError if it can't be used.
    """

    def __init__(self, path: Path, limits: UndoLimits, warn: Callable[[str], None]) -> None:
        self.path = path
        self.limits = limits
        self._warn = warn
        self._file = database.DatabaseFile(path, MIGRATIONS, self._warn_of_damage, errors.UndoError)
        # whether what is too old has been removed
        self._is_cleaned = False
        self._is_full = False

    def put(self, session: str, objects: dict[str, bytes]) -> None:
        """Store contents by their digests, in one transaction; the oldest go if it is full."""
        now = time.time_ns()

        def work(connection: sqlite3.Connection) -> None:
            # a content that is stored already was used again now
            connection.executemany(
                "INSERT INTO objects VALUES (?, ?, ?, ?) "
                "ON CONFLICT (digest) DO UPDATE SET used = excluded.used",
                [(digest, data, len(data), now) for digest, data in objects.items()],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO uses VALUES (?, ?)", [(session, d) for d in objects]
            )
            self._free_space(connection, kept=set(objects))

        if objects:
            self._remove_old()
            self._file.run(work)

    def use(self, digests: Iterable[str]) -> int:
        """Let these contents go last if the store is full; returns their size in bytes."""
        rows = [(time.time_ns(), digest) for digest in digests]

        def work(connection: sqlite3.Connection) -> int:
            connection.executemany("UPDATE objects SET used = ? WHERE digest = ?", rows)
            statement = "SELECT bytes FROM objects WHERE digest = ?"
            sizes = (connection.execute(statement, row[1:]).fetchone() for row in rows)
            return sum(size[0] for size in sizes if size)

        return self._file.run(work) if rows else 0

    def check_space(self, more: int) -> None:
        """Warn if the oldest contents have to go before so many bytes more can be kept."""
        self._file.run(lambda c: self._excess(c, more), write=False)

    def get(self, digest: str) -> bytes | None:
        """The content of a digest, None if it is not stored any more."""
        statement = "SELECT data FROM objects WHERE digest = ?"
        row = self._file.run(lambda c: c.execute(statement, (digest,)).fetchone(), write=False)
        return None if row is None else bytes(row[0])

    def write(self, session: str, change: Change) -> None:
        """Add a change, or replace the one of its number."""
        row = (
            session, change.number, change.at, change.kind.value, change.label, time.time_ns(),
            entries_to_json(change.entries), int(change.finished),
        )  # fmt: skip
        self._file.run(
            lambda c: c.execute("INSERT OR REPLACE INTO changes VALUES (?,?,?,?,?,?,?,?)", row)
        )

    def drop(self, session: str, number: int) -> None:
        """Remove a change that changed nothing."""
        self._file.run(
            lambda c: c.execute(
                "DELETE FROM changes WHERE session = ? AND number = ?", (session, number)
            )
        )

    def changes(self, session: str) -> list[Change]:
        """The changes of a session in their order; [] before the file exists."""
        if not self.path.exists():
            return []

        rows = self._file.run(lambda c: c.execute(_CHANGES, (session,)).fetchall(), write=False)
        return [
            Change(n, at, ChangeKind(kind), label, entries_from_json(text), bool(finished), written)
            for n, at, kind, label, text, finished, written in rows
        ]

    def sessions(self) -> list[str]:
        """The sessions with changes."""
        if not self.path.exists():
            return []
        statement = "SELECT DISTINCT session FROM changes"
        rows = self._file.run(lambda c: c.execute(statement).fetchall(), write=False)
        return [row[0] for row in rows]

    def forget(self, session: str) -> None:
        """Remove all about a session, and the contents that no other session uses."""
        if self.path.exists():
            self._file.run(lambda c: _forget(c, [session]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _remove_old(self) -> None:
        """Remove what is too old; once is enough, as limits are in days."""
        if self._is_cleaned:
            return
        self._is_cleaned = True
        oldest = time.time_ns() - self.limits.max_days * DAY

        def work(connection: sqlite3.Connection) -> None:
            # sessions whose last change is old, then contents that only such changes have used
            rows = connection.execute(
                "SELECT session FROM changes GROUP BY session HAVING max(time) < ?", (oldest,)
            )
            _forget(connection, [row[0] for row in rows])
            connection.execute("DELETE FROM objects WHERE used < ?", (oldest,))

        self._file.run(work)

    def _free_space(self, connection: sqlite3.Connection, kept: set[str]) -> None:
        """Remove the contents that were used longest ago if the store is too large."""
        to_free = self._excess(connection)
        if to_free <= 0:
            return
        to_free += self.limits.max_bytes // FREED_SHARE
        rows = connection.execute("SELECT digest, bytes FROM objects ORDER BY used").fetchall()
        for digest, size in rows:
            if to_free <= 0:
                break
            if digest not in kept:  # the contents that were just stored
                connection.execute("DELETE FROM objects WHERE digest = ?", (digest,))
                to_free -= size

    def _excess(self, connection: sqlite3.Connection, more: int = 0) -> int:
        """How many bytes are too much with so many more; the first time, the user hears of it."""
        statement = "SELECT total(bytes), min(used) FROM objects"
        total, oldest = connection.execute(statement).fetchone()
        excess = int(total) + more - self.limits.max_bytes
        if total and excess > 0 and not self._is_full:
            self._is_full = True
            day = f"{datetime.fromtimestamp(oldest / 10**9).astimezone():%Y-%m-%d}"
            limit = f"undo.max_mib = {self.limits.max_bytes >> 20}"
            oldest_files = f"its oldest files, of {day}, are the next to go"
            self._warn(f"The store of /undo is full ({limit}): {oldest_files}.")
        return excess

    def _warn_of_damage(self, error: Exception, aside: Path) -> None:
        self._warn(f"The store for /undo was damaged ({error}); the old file is {aside}")


def forget_session(path: Path, session: str, warn: Callable[[str], None]) -> None:
    """Remove all about a session from the store at `path`; raises UndoError."""
    store = UndoStore(path, UndoLimits(), warn)
    try:
        store.forget(session)
    finally:
        store.close()


def _forget(connection: sqlite3.Connection, sessions: list[str]) -> None:
    """Remove all about the sessions, and the contents that no other session uses."""
    names = [(session,) for session in sessions]
    connection.executemany("DELETE FROM changes WHERE session = ?", names)
    connection.executemany("DELETE FROM uses WHERE session = ?", names)
    connection.execute("DELETE FROM objects WHERE digest NOT IN (SELECT digest FROM uses)")
