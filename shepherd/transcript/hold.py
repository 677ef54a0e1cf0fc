"""The right to write one session in PostgreSQL, which one process has at a time."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from shepherd.errors import SessionError
from shepherd.storage.postgres import PostgresServer
from shepherd.transcript.storage import open_elsewhere

if TYPE_CHECKING:
    import psycopg

_KEEPALIVES = (
    "SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3"
)
"""The database notices within 25 seconds that the machine of a connection is gone."""

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock_all()"
_HOLDER = "SELECT holder FROM sessions WHERE id = %s"
_TAKE = "UPDATE sessions SET holder = %s WHERE id = %s"
_ADD = (
    "INSERT INTO sessions (id, holder, updated) VALUES (%s, %s, now()) ON CONFLICT (id) "
    "DO UPDATE SET updated = now() WHERE sessions.holder = excluded.holder"
)
_TOUCH = "UPDATE sessions SET updated = now() WHERE id = %s AND holder = %s"
_PUT = (
    "INSERT INTO session_lines (session, number, line) VALUES (%s, %s, %s) "
    "ON CONFLICT (session, number) DO UPDATE SET line = excluded.line"
)
_LINES = "SELECT line FROM session_lines WHERE session = %s ORDER BY number"


class SessionHold:
    """A session's lock, which lasts as long as the connection that has it.

    The database frees the lock of a process that ends, in whatever way. A lost connection is made
    again. The holder in the session's row then says whether another process had the lock
    meanwhile: this one must not write any more. Methods raise psycopg's errors and SessionError.
    """

    def __init__(self, server: PostgresServer, id: str) -> None:
        self._server = server
        self._id = id
        self._token = secrets.token_hex(16)
        self._connection: psycopg.Connection | None = None
        self._is_stored = False

    def take(self) -> None:
        """Hold an existing session."""
        connection = self._server.connect()
        try:
            if not _has_lock(connection, self._id):
                raise SessionError(open_elsewhere(self._id))
            if connection.execute(_TAKE, (self._token, self._id)).rowcount != 1:
                raise SessionError(f"Session {self._id} has been deleted.")
        except BaseException:
            connection.close()
            raise
        self._connection, self._is_stored = connection, True

    def read(self) -> list[bytes]:
        """The lines of the session."""
        return [bytes(line) for (line,) in self._held().execute(_LINES, (self._id,))]

    def check(self) -> None:
        """Notice a lost connection, and make it again."""
        self._held().execute("SELECT 1")

    def write(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Put lines at their numbers, all or none; the same lines can be written again."""
        connection = self._held()
        statement = _TOUCH if self._is_stored else _ADD
        with connection.transaction():
            if connection.execute(statement, (self._id, self._token)).rowcount != 1:
                raise SessionError(open_elsewhere(self._id))
            rows = [(self._id, number, line) for number, line in lines]
            connection.cursor().executemany(_PUT, rows)
        self._is_stored = True

    def release(self) -> None:
        """Free the session.

        PostgreSQL frees the lock of a closed connection a moment later, so it is freed first.
        """
        from psycopg import Error

        connection = self._connection
        if connection is None:
            return
        with suppress(Error):  # a lost connection has no lock
            connection.execute(_UNLOCK)
        connection.close()

    def _held(self) -> "psycopg.Connection":
        """The connection that has the lock.

        The lock may still belong to a lost connection of this process. That is an OperationalError:
        the next attempt may succeed.
        """
        from psycopg import OperationalError

        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection = self._server.connect()
        try:
            has_lock = _has_lock(connection, self._id)
            row = connection.execute(_HOLDER, (self._id,)).fetchone()
            if (self._is_stored and row is None) or (row is not None and row[0] != self._token):
                raise SessionError(open_elsewhere(self._id))
            if not has_lock:
                raise OperationalError("the lost connection still has the lock of the session")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


def lock_name(id: str) -> str:
    """The name of the lock of a session."""
    return f"sessions:{id}"


def _has_lock(connection: "psycopg.Connection", id: str) -> bool:
    """Take the lock of a session, unless another connection has it."""
    connection.execute(_KEEPALIVES)
    row = connection.execute(_LOCK, (lock_name(id),)).fetchone()
    return row is not None and bool(row[0])
