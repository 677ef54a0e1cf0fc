"""Sessions in PostgreSQL: a row for each, and a row for each of its lines."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from shepherd.errors import SessionError, SessionStorageError
from shepherd.storage.postgres import PostgresServer
from shepherd.storage.rows import Rows
from shepherd.transcript.database_log import DatabaseLog
from shepherd.transcript.hold import lock_name
from shepherd.transcript.storage import open_elsewhere

MIGRATIONS = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        holder TEXT NOT NULL,
        updated TIMESTAMPTZ NOT NULL
    );
    CREATE INDEX sessions_updated ON sessions (updated, id);
    CREATE TABLE session_lines (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        number BIGINT NOT NULL,
        line BYTEA NOT NULL,
        PRIMARY KEY (session, number)
    );
    """,
)
"""Line 0 is the header; `holder` is the process that has written last, or writes."""

PAGE = 200
"""Sessions of which one statement reads the headers."""

_IDS = "SELECT id FROM sessions ORDER BY updated DESC, id DESC"
_HEADERS = """
SELECT id, line FROM sessions JOIN session_lines ON session = id AND number = 0
ORDER BY updated DESC, id DESC LIMIT ? OFFSET ?
"""
_LINES = "SELECT line FROM session_lines WHERE session = ? ORDER BY number"
_MODIFIED = "SELECT EXTRACT(EPOCH FROM updated) FROM sessions WHERE id = ?"
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))"
_NEW = """
INSERT INTO sessions (id, holder, updated)
VALUES (?, '', to_timestamp(CAST(? AS DOUBLE PRECISION))) ON CONFLICT DO NOTHING
"""
_LINE = "INSERT INTO session_lines (session, number, line) VALUES (?, ?, ?)"


class SessionDatabase:
    """The `SessionStorage` in a database."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.tables = server.database("sessions", MIGRATIONS, SessionStorageError)

    def name(self, id: str) -> str:
        """See `SessionStorage`."""
        return f"{self._server.address}: session {id}"

    def ids(self) -> list[str]:
        """See `SessionStorage`."""
        return [str(session_id) for (session_id,) in self._select(_IDS)]

    def headers(self) -> Iterator[tuple[str, bytes]]:
        """See `SessionStorage`."""
        offset = 0
        while page := self._select(_HEADERS, PAGE, offset):
            yield from ((str(session_id), bytes(line)) for session_id, line in page)
            offset += len(page)

    def read(self, id: str) -> bytes:
        """See `SessionStorage`."""
        lines = [bytes(line) for (line,) in self._select(_LINES, id)]
        if not lines:
            raise SessionError(f"{self.name(id)} has been deleted.")
        return b"".join(line + b"\n" for line in lines)

    def modified(self, id: str) -> float:
        """See `SessionStorage`."""
        rows = self._select(_MODIFIED, id)
        return float(rows[0][0]) if rows else 0.0

    def create(self, id: str, notify: Callable[[str], None]) -> DatabaseLog:
        """See `SessionStorage`."""
        return DatabaseLog(self._server, id, notify)

    def open(self, id: str, notify: Callable[[str], None]) -> DatabaseLog:
        """See `SessionStorage`."""
        log = DatabaseLog(self._server, id, notify)
        log.take()
        return log

    def delete(self, id: str) -> None:
        """See `SessionStorage`."""
        self.tables.run(partial(_delete, id=id))

    def add(self, id: str, data: bytes, modified: float) -> bool:
        """Add a whole session that was written elsewhere; False if there is one of this id."""
        return bool(self.tables.run(partial(_add, id=id, data=data, modified=modified)))

    def _select(self, statement: str, *values: object) -> list[Any]:
        def work(rows: Rows) -> list[Any]:
            return rows.execute(statement, values).fetchall()

        return self.tables.run(work, write=False)


def _delete(rows: Rows, id: str) -> None:
    if not rows.execute(_LOCK, (lock_name(id),)).fetchone()[0]:
        raise SessionError(open_elsewhere(id))
    rows.execute("DELETE FROM sessions WHERE id = ?", (id,))


def _add(rows: Rows, id: str, data: bytes, modified: float) -> bool:
    if rows.execute("SELECT 1 FROM sessions WHERE id = ?", (id,)).fetchone() is not None:
        return False
    rows.execute(_NEW, (id, modified))
    lines = data.split(b"\n")[:-1]
    rows.executemany(_LINE, ((id, number, line) for number, line in enumerate(lines)))
    return True
