"""Sessions in PostgreSQL: a row for each, and a row for each of its lines."""

import secrets
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from shepherd.errors import SessionError, SessionOpenError, SessionStorageError
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Rows, one_line, translated

if TYPE_CHECKING:
    import psycopg

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

CHECK_SECONDS = 3.0
"""The time between the checks of a connection, and between attempts to write again."""

PAGE = 200
"""Sessions of which one statement reads the headers."""

_IDS = "SELECT id FROM sessions ORDER BY updated DESC, id DESC"
_HEADERS = """
SELECT id, line FROM sessions JOIN session_lines ON session = id AND number = 0
ORDER BY updated DESC, id DESC LIMIT ? OFFSET ?
"""
_LINES = "SELECT line FROM session_lines WHERE session = ? ORDER BY number"
_MODIFIED = "SELECT EXTRACT(EPOCH FROM updated) FROM sessions WHERE id = ?"
_LOCK_SHORTLY = "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))"
"""The lock until the end of the transaction."""

_NEW = """
INSERT INTO sessions (id, holder, updated)
VALUES (?, '', to_timestamp(CAST(? AS DOUBLE PRECISION))) ON CONFLICT DO NOTHING
"""
_LINE = "INSERT INTO session_lines (session, number, line) VALUES (?, ?, ?)"


class SessionDatabase:
    """The `SessionStorage` in a database."""

    def __init__(self, server: PostgresServer, check_seconds: float = CHECK_SECONDS) -> None:
        self._server = server
        self._check_seconds = check_seconds
        self.tables = PostgresDatabase(server, "sessions", MIGRATIONS, SessionStorageError)

    def name(self, id: str) -> str:
        """The name of a session in messages."""
        return f"{self._server.address}: session {id}"

    def ids(self) -> list[str]:
        """The ids of all sessions, the one that changed last first."""
        return [str(session_id) for (session_id,) in self._select(_IDS)]

    def headers(self) -> Iterator[tuple[str, bytes]]:
        """The ids in the same order, each with its first line."""
        offset = 0
        while page := self._select(_HEADERS, PAGE, offset):
            yield from ((str(session_id), bytes(line)) for session_id, line in page)
            offset += len(page)

    def read(self, id: str) -> bytes:
        """The lines of a session, without locking it."""
        lines = [bytes(line) for (line,) in self._select(_LINES, id)]
        if not lines:
            raise SessionError(f"{self.name(id)} has been deleted.")
        return b"".join(line + b"\n" for line in lines)

    def modified(self, id: str) -> float:
        """The time of the last change in seconds since 1970; 0 if there is no such session."""
        rows = self._select(_MODIFIED, id)
        return float(rows[0][0]) if rows else 0.0

    def create(self, id: str, notify: Callable[[str], None]) -> "DatabaseLog":
        """A new session, which exists from its first line on."""
        return DatabaseLog(self._server, id, notify, self._check_seconds)

    def open(self, id: str, notify: Callable[[str], None]) -> "DatabaseLog":
        """An existing session; raises SessionError if it is open in another process."""
        log = DatabaseLog(self._server, id, notify, self._check_seconds)
        log.take()
        return log

    def delete(self, id: str) -> None:
        """Delete a session; raises SessionError if it is open in another process."""

        def work(rows: Rows) -> None:
            if not rows.execute(_LOCK_SHORTLY, (_lock_name(id),)).fetchone()[0]:
                raise SessionOpenError(id)
            rows.execute("DELETE FROM sessions WHERE id = ?", (id,))

        self.tables.run(work)

    def add(self, id: str, data: bytes, modified: float) -> bool:
        """Add a whole session that was written elsewhere; False if there is one of this id."""

        def work(rows: Rows) -> bool:
            if rows.execute("SELECT 1 FROM sessions WHERE id = ?", (id,)).fetchone() is not None:
                return False
            rows.execute(_NEW, (id, modified))
            lines = data.split(b"\n")[:-1]
            rows.executemany(_LINE, ((id, number, line) for number, line in enumerate(lines)))
            return True

        return self.tables.run(work)

    def _select(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement that only reads."""

        def work(rows: Rows) -> list[Any]:
            return rows.execute(statement, values).fetchall()

        return self.tables.run(work, write=False)


ATTEMPTS = 2
"""A lost connection is noticed by the first attempt, and made again for the second one."""


class DatabaseLog:
    """The `SessionLog` in a database; each append is one transaction. One thread uses it.

    While the database does not answer, lines wait in memory. A thread of the log writes them later,
    and checks the connection, so that the session stays locked.
    """

    def __init__(
        self,
        server: PostgresServer,
        id: str,
        notify: Callable[[str], None],
        check_seconds: float,
    ) -> None:
        self._check_seconds = check_seconds
        self._name = f"{server.address}: session {id}"
        self._hold = SessionHold(server, id)
        self._notify = notify
        self._line_count = 0
        self._waiting: list[tuple[int, bytes]] = []  # numbered lines that are not written yet
        self._waiting_lock = threading.Lock()
        self._connection_problem = ""  # "" while the database answers
        self._has_notified = False
        self._failure: SessionError | None = None
        self._writing = threading.Lock()  # one thread at a time uses the connection
        self._released = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=self._name, daemon=True)

    def take(self) -> None:
        """Hold the existing session; raises SessionError."""
        with _storage_errors(self._name):
            self._hold.take()
        self._watcher.start()

    def read(self) -> bytes:
        """All lines with their newlines."""
        with _storage_errors(self._name), self._writing:
            lines = self._hold.read()
        self._line_count = len(lines)
        return b"".join(line + b"\n" for line in lines)

    def cut(self, length: int) -> None:
        """Rows are whole lines, so that there is nothing to remove."""

    def append(self, data: bytes) -> None:
        """Add whole lines; they wait in memory while the database does not answer."""
        lines = data.split(b"\n")[:-1]
        if not self._line_count:  # a new session, which is locked from here on
            self._watcher.start()
        numbered = list(enumerate(lines, self._line_count))
        self._line_count += len(lines)
        self._save(numbered)

    def sync(self) -> None:
        """Try once more to write what waits; raises SessionError if it is lost."""
        self._connection_problem = ""
        self._save([])
        if problem := self._connection_problem:
            raise SessionError(f"the last {len(self._waiting)} lines are lost: {problem}")

    def release(self) -> None:
        """End the watcher, and let other processes write the session."""
        self._released.set()
        with self._writing:  # the watcher may be writing
            self._hold.release()

    def _save(self, lines: list[tuple[int, bytes]]) -> None:
        """Write lines; while the database does not answer, keep them, and say so once."""
        with self._waiting_lock:
            self._waiting += lines
        if self._failure is not None:
            raise self._failure
        if not self._connection_problem:  # else the watcher tries, so that no line takes long
            self._write()
        problem = self._connection_problem
        if problem and not self._has_notified:
            self._notify(f"{self._name}: it is saved once the database answers: {problem}")
        self._has_notified = bool(problem)

    def _watch(self) -> None:
        """Write what waits, and check the connection, until the release; a thread of its own."""
        while not self._released.wait(self._check_seconds):
            try:
                self._write(check=True)
            except SessionError as error:  # the next line raises it
                self._failure = error
                return

    def _write(self, *, check: bool = False) -> None:
        """Write what waits; raises SessionError if that will never succeed.

        With `check`, a lost connection is noticed even if no line waits.
        """
        import psycopg

        problem = ""
        with self._writing:
            for _ in range(ATTEMPTS):
                try:
                    self._attempt(check=check)
                except psycopg.OperationalError as error:
                    problem = one_line(error)
                except psycopg.Error as error:
                    raise SessionError(one_line(error)) from error
                else:
                    return
            self._connection_problem = problem

    def _attempt(self, *, check: bool) -> None:
        """Write until no line waits; a further one may come while lines are written."""
        if self._released.is_set():
            return
        if check:
            self._hold.check()
        while True:
            with self._waiting_lock:
                lines = self._waiting[:]
                if not lines:
                    self._connection_problem = ""
                    return
            self._hold.write(lines)
            with self._waiting_lock:
                del self._waiting[: len(lines)]


@contextmanager
def _storage_errors(name: str) -> Generator[None]:
    """Raise SessionStorageError for an error of psycopg."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise SessionStorageError(f"{name}: {one_line(error)}") from error


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
        # whether the session has a row
        self._is_stored = False

    def take(self) -> None:
        """Hold an existing session."""
        with self._connected() as connection:
            if not _has_lock(connection, self._id):
                raise SessionOpenError(self._id)
            if connection.execute(_TAKE, (self._token, self._id)).rowcount != 1:
                raise SessionError(f"Session {self._id} has been deleted.")
        self._is_stored = True

    def read(self) -> list[bytes]:
        """The lines of the session."""
        return [bytes(line) for (line,) in self._held().execute(translated(_LINES), (self._id,))]

    def check(self) -> None:
        """Notice a lost connection, and make it again."""
        self._held().execute("SELECT 1")

    def write(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Put lines at their numbers, all or none; the same lines can be written again."""
        connection = self._held()
        statement = _TOUCH if self._is_stored else _ADD
        with connection.transaction():
            if connection.execute(statement, (self._id, self._token)).rowcount != 1:
                raise SessionOpenError(self._id)
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
        with self._connected() as connection:
            has_lock = _has_lock(connection, self._id)
            row = connection.execute(_HOLDER, (self._id,)).fetchone()
            was_deleted = self._is_stored and row is None
            was_taken = row is not None and row[0] != self._token
            if was_deleted or was_taken:
                raise SessionOpenError(self._id)
            if not has_lock:
                raise OperationalError("the lost connection still has the lock of the session")
        return connection

    @contextmanager
    def _connected(self) -> Generator["psycopg.Connection"]:
        """A new connection, which is closed after an error, and otherwise kept."""
        connection = self._server.connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._connection = connection


def _lock_name(id: str) -> str:
    """The name of the lock of a session."""
    return f"sessions:{id}"


def _has_lock(connection: "psycopg.Connection", id: str) -> bool:
    """Take the lock of a session, unless another connection has it."""
    connection.execute(_KEEPALIVES)
    row = connection.execute(_LOCK, (_lock_name(id),)).fetchone()
    return row is not None and bool(row[0])
