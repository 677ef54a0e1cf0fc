"""The lines of one open session in PostgreSQL."""

import threading
from collections.abc import Callable

from shepherd.errors import SessionError, SessionStorageError
from shepherd.storage.postgres import PostgresServer
from shepherd.storage.rows import one_line
from shepherd.transcript.hold import SessionHold

CHECK_SECONDS = 3.0
"""The time between the checks of a connection, and between attempts to write again."""

ATTEMPTS = 2
"""A lost connection is noticed by the first attempt, and made again for the second one."""


class DatabaseLog:
    """The `SessionLog` in a database; each append is one transaction. One thread uses it.

    While the database does not answer, lines wait in memory. A thread of the log writes them later,
    and checks the connection, so that the session stays locked.
    """

    def __init__(self, server: PostgresServer, id: str, notify: Callable[[str], None]) -> None:
        self._name = f"{server.address}: session {id}"
        self._hold = SessionHold(server, id)
        self._notify = notify
        self._header = b""
        self._count = 0
        self._waiting: list[tuple[int, bytes]] = []
        self._away = ""
        self._was_away = False
        self._failure: SessionError | None = None
        self._state, self._writing = threading.Lock(), threading.Lock()
        self._released = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=self._name, daemon=True)

    def take(self) -> None:
        """Hold the existing session; raises SessionError."""
        import psycopg

        try:
            self._hold.take()
        except psycopg.Error as error:
            raise SessionStorageError(f"{self._name}: {one_line(error)}") from error
        self._watcher.start()

    def read(self) -> bytes:
        """See `SessionLog`."""
        import psycopg

        try:
            with self._writing:
                lines = self._hold.read()
        except psycopg.Error as error:
            raise SessionStorageError(f"{self._name}: {one_line(error)}") from error
        self._header, self._count = b"".join(lines[:1]), len(lines)
        return b"".join(line + b"\n" for line in lines)

    def cut(self, length: int) -> None:
        """Rows are whole lines, so that there is nothing to remove."""

    def append(self, data: bytes) -> None:
        """See `SessionLog`."""
        lines = data.split(b"\n")[:-1]
        if not self._count:
            self._header = lines[0]
            self._watcher.start()
        numbered = list(enumerate(lines, self._count))
        self._count += len(lines)
        self._save(numbered)

    def replace_header(self, change: Callable[[bytes], bytes]) -> None:
        """See `SessionLog`."""
        self._header = change(self._header)
        self._save([(0, self._header)])

    def sync(self) -> None:
        """See `SessionLog`; tries once more to write what waits."""
        self._away = ""
        self._save([])
        if self._away:
            raise SessionError(f"the last {len(self._waiting)} lines are lost: {self._away}")

    def release(self) -> None:
        """See `SessionLog`."""
        self._released.set()
        with self._writing:
            self._hold.release()

    def _save(self, lines: list[tuple[int, bytes]]) -> None:
        """Write lines; while the database does not answer, keep them, and say so once."""
        with self._state:
            self._waiting += lines
        if self._failure is not None:
            raise self._failure
        if not self._away:
            self._write()
        if self._away and not self._was_away:
            self._notify(f"{self._name}: it is saved once the database answers: {self._away}")
        self._was_away = bool(self._away)

    def _watch(self) -> None:
        while not self._released.wait(CHECK_SECONDS):
            try:
                self._write(check=True)
            except SessionError as error:
                self._failure = error
                return

    def _write(self, *, check: bool = False) -> None:
        """Write what waits; raises SessionError if that will never succeed."""
        import psycopg

        problem = ""
        with self._writing:
            for _ in range(ATTEMPTS):
                try:
                    return self._attempt(check=check)
                except psycopg.OperationalError as error:
                    problem = one_line(error)
                except psycopg.Error as error:
                    raise SessionError(one_line(error)) from error
            self._away = problem
        return None

    def _attempt(self, *, check: bool) -> None:
        if self._released.is_set():
            return
        if check:
            self._hold.check()
        while True:
            with self._state:
                lines = self._waiting[:]
                if not lines:
                    self._away = ""
                    return
            self._hold.write(lines)
            with self._state:
                del self._waiting[: len(lines)]
