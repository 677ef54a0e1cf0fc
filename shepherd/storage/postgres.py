"""A PostgreSQL database: connections, transactions that are done once, and migrations."""

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from shepherd.errors import ConfigError, ShepherdError
from shepherd.storage.address import Address
from shepherd.storage.rows import Cursor, Rows, Values
from shepherd.storage.schema import prepare
from shepherd.storage.statements import one_line, storable, translated

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

INSTALL = "server.database needs psycopg: run `pip install 'shepherd[postgres]'`."

RETRY_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""The pauses between the attempts of one transaction."""

MAX_ATTEMPT_SECONDS = 3.0
"""No attempt begins later than this after the first one."""

MAX_PAUSE_SECONDS = 2.0
"""The maximum time without any attempt after a transaction has failed."""

LEDGER_MINUTES = 60
"""The time for which a transaction that may have been committed can be asked about."""

WRITES_PER_PRUNING = 500
MAX_IDLE = 8
"""Connections that are kept open for the next transactions."""

_OPTIONS = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5000,  # milliseconds
    "keepalives_idle": 10,
    "application_name": "shepherd",
}
_SESSION = "SET search_path TO shepherd; SET statement_timeout TO '10s'; SET lock_timeout TO '5s'"

_BEGIN = "INSERT INTO ledger (id) VALUES (%s) ON CONFLICT DO NOTHING"
_BEGIN_LOCKED = """
INSERT INTO ledger (id)
SELECT %s FROM (SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))) AS locked
ON CONFLICT DO NOTHING
"""
_PRUNE = "DELETE FROM ledger WHERE moment < now() - make_interval(mins => %s)"


class DatabaseError(ShepherdError):
    """The database can't be reached or used; the message never holds the password."""


class PostgresRows:
    """The tables within one transaction."""

    def __init__(self, connection: "psycopg.Connection") -> None:
        self._connection = connection

    def execute(self, statement: str, values: Values = (), /) -> Cursor:
        """See `Rows`."""
        return self._connection.execute(translated(statement), storable(values))

    def executemany(self, statement: str, values: Iterable[Values], /) -> object:
        """See `Rows`."""
        cursor = self._connection.cursor()
        cursor.executemany(translated(statement), [storable(row) for row in values])
        return cursor


@dataclass(frozen=True, slots=True)
class _Transaction:
    """What a transaction is to do."""

    write: bool
    lock: str
    once: str


class PostgresServer:
    """One database, and the connections of this process to it; for all threads.

    A lost connection is made again with growing pauses. When that fails, all transactions fail at
    once for a moment, and then the next ones try again.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._failures = 0
        self._paused_until = 0.0
        self._problem = ""
        self._writes = 0
        weakref.finalize(self, _close_all, self._idle)

    def database(
        self, store: str, migrations: Sequence[str], failure: type[ShepherdError]
    ) -> "PostgresDatabase":
        """The tables of one store; see `PostgresDatabase`."""
        return PostgresDatabase(self, store, migrations, failure)

    def check(self) -> None:
        """Raise DatabaseError if the database does not answer."""
        transaction = _Transaction(write=False, lock="", once="")
        self.run(lambda rows: rows.execute("SELECT 1"), transaction, lambda _connection: None)

    def run(
        self,
        work: Callable[[Rows], T],
        transaction: _Transaction,
        prepare: Callable[["psycopg.Connection"], object],
    ) -> T:
        """Do a transaction, for which `prepare` gets each connection first.

        Raises DatabaseError, and ConfigError without psycopg.
        """
        check_installed()
        import psycopg

        if time.monotonic() < self._paused_until:
            raise DatabaseError(self._problem)
        attempt = _Attempt(work, transaction)
        latest = time.monotonic() + MAX_ATTEMPT_SECONDS
        for pause in (*RETRY_SECONDS, None):
            try:
                with self._connection() as connection:
                    prepare(connection)
                    result = attempt.run(connection)
                self._failures = 0
                return result
            except psycopg.OperationalError as error:  # lost, refused, or a deadlock
                if pause is None or time.monotonic() > latest:
                    raise self._pause(error) from error
                time.sleep(pause)
            except psycopg.Error as error:
                raise DatabaseError(f"{self.address}: {one_line(error)}") from error
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            _close_all(self._idle)

    def count_write(self) -> bool:
        """Whether the ledger should be pruned with this write."""
        with self._lock:
            self._writes += 1
            return self._writes % WRITES_PER_PRUNING == 1

    def _pause(self, error: Exception) -> DatabaseError:
        pause = min(MAX_PAUSE_SECONDS, 0.25 * 2 ** min(self._failures, 8))
        self._failures += 1
        self._problem = f"{self.address}: {_with_advice(one_line(error))}"
        self._paused_until = time.monotonic() + pause
        self.close()
        return DatabaseError(self._problem)

    @contextmanager
    def _connection(self) -> Generator["psycopg.Connection"]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _give_back(self, connection: "psycopg.Connection") -> None:
        """Keep a connection for the next transaction; if it is lost, close all idle ones."""
        if connection.closed:
            self.close()
            return
        is_idle = connection.info.transaction_status.name == "IDLE"
        with self._lock:
            keeps = is_idle and len(self._idle) < MAX_IDLE
            if keeps:
                self._idle.append(connection)
        if not keeps:
            connection.close()

    def connect(self) -> "psycopg.Connection":
        """A new connection, which the caller closes; raises psycopg's OperationalError."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        secret = {"password": self.address.password} if self.address.password else {}
        parameters = _OPTIONS | conninfo_to_dict(self.address.url) | secret
        connection = psycopg.connect(
            make_conninfo("", **parameters), autocommit=True, prepare_threshold=None
        )
        try:
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresDatabase:
    """A `Database` in PostgreSQL: the tables of `store`.

    `migrations` are the statements from each version to the next; tables of a higher version are
    not used. `failure` is the error for a database that can't be used.
    """

    def __init__(
        self,
        server: PostgresServer,
        store: str,
        migrations: Sequence[str],
        failure: type[ShepherdError],
    ) -> None:
        self.server = server
        self._store = store
        self._migrations = migrations
        self._failure = failure
        self._is_prepared = False

    def run(
        self, work: Callable[[Rows], T], *, write: bool = True, lock: str = "", once: str = ""
    ) -> T:
        """See `Database`."""
        transaction = _Transaction(write, f"{self._store}:{lock}" if lock else "", once)
        try:
            return self.server.run(work, transaction, self._prepare)
        except DatabaseError as error:
            raise self._failure(str(error)) from error

    def migrate(self) -> None:
        """Bring the tables to the current version; raises the error of the store."""
        self.run(str, write=False)

    def close(self) -> None:
        """The connections stay open for the other stores."""

    def _prepare(self, connection: "psycopg.Connection") -> None:
        if not self._is_prepared:
            if not prepare(connection, self._store, self._migrations):
                raise DatabaseError(
                    f"{self.server.address}: the tables were written by a newer Shepherd; "
                    "update this one too"
                )
            self._is_prepared = True
        if self.server.count_write():
            connection.execute(_PRUNE, (LEDGER_MINUTES,))


class _Attempt(Generic[T]):
    """The attempts of one transaction, of which at most one is committed.

    Each puts its id into the ledger first. If the id is there already, an earlier attempt was
    committed, and only the answer was lost.
    """

    def __init__(self, work: Callable[[Rows], T], transaction: _Transaction) -> None:
        self._work = work
        self._transaction = transaction
        self._id = transaction.once or secrets.token_hex(16)
        self._result: T | None = None

    def run(self, connection: "psycopg.Connection") -> T:
        """The result of the work, None if an earlier transaction has done it."""
        with connection.transaction():
            if self._begin(connection):
                self._result = self._work(PostgresRows(connection))
        return cast(T, self._result)

    def _begin(self, connection: "psycopg.Connection") -> bool:
        lock = self._transaction.lock
        if not self._transaction.write:
            return True
        if lock:
            cursor = connection.execute(_BEGIN_LOCKED, (self._id, lock))
        else:
            cursor = connection.execute(_BEGIN, (self._id,))
        return cursor.rowcount == 1


def _close_all(connections: "list[psycopg.Connection]") -> None:
    while connections:
        connections.pop().close()


def _with_advice(problem: str) -> str:
    """The problem of a connection, and what helps if the password is wrong or missing."""
    if "password authentication failed" in problem or "no password supplied" in problem:
        return f"{problem}. `shepherd database password` stores the password."
    return problem


def check_installed() -> None:
    """Raise ConfigError if psycopg can't be imported."""
    try:
        import_module("psycopg")
    except ImportError as error:
        raise ConfigError(INSTALL) from error
