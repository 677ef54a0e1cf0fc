"""A PostgreSQL database: its connections, transactions and migrations."""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from shepherd.errors import ConfigError, ShepherdError
from shepherd.storage.rows import Cursor, Rows, Values, one_line, storable, translated

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import ConnectionPool

T = TypeVar("T")


INSTALL = "server.database needs psycopg: run `pip install 'psycopg[binary,pool]'`."

MAX_CONNECTIONS = 12
WAIT_SECONDS = 1.5
"""The time that a transaction waits for a connection."""

RETRY_SECONDS = (0.05, 0.2, 0.5)
"""The pauses between the attempts of one transaction whose connection was lost."""

PAUSE_SECONDS = 1.0
"""The time without any attempt after the database did not answer."""

SCHEMA = "shepherd"
_MIGRATION_LOCK = 0x5348_4550
"""The advisory lock of migrations: one process migrates at a time."""

_OPTIONS = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5000,  # milliseconds
    "keepalives_idle": 10,
    "application_name": "shepherd",
}
_CONNECTION: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
"""Transactions are begun where they are needed; no statement is prepared."""

_SESSION = "SET search_path TO shepherd; SET statement_timeout TO '10s'; SET lock_timeout TO '5s'"
_BASE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.versions (store TEXT PRIMARY KEY, version BIGINT NOT NULL);
"""
_EXISTS = f"SELECT to_regclass('{SCHEMA}.versions') IS NOT NULL"
_VERSION = f"SELECT version FROM {SCHEMA}.versions WHERE store = %s"
_SET_VERSION = (
    f"INSERT INTO {SCHEMA}.versions VALUES (%s, %s) "
    "ON CONFLICT (store) DO UPDATE SET version = excluded.version"
)


class DatabaseError(ShepherdError):
    """The database can't be reached or used; the message never holds the password."""


class Address(Struct, frozen=True):
    """Where the database is; `password` is "" if libpq finds one itself, or none is needed."""

    url: str
    password: str = ""

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"  # without the password

    def __str__(self) -> str:
        """The host and the name of the database, for messages."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        if not host:
            host = dict(parse_qsl(parts.query)).get("host", "")
        return f"PostgreSQL ({host}{parts.path})"


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


class PostgresServer:
    """One database, and the connections of this process to it; for all threads.

    When the database does not answer, all transactions fail at once for a moment, and then the next
    ones try again.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._pool: ConnectionPool[psycopg.Connection] | None = None
        self._paused_until = 0.0
        """The time of the monotonic clock before which no transaction is tried."""
        self._last_problem = ""
        self.answered = -math.inf
        """The time of the monotonic clock at which a transaction last succeeded."""

    def check(self) -> None:
        """Raise DatabaseError if the database does not answer."""
        self.run(lambda rows: rows.execute("SELECT 1"))

    def run(
        self,
        work: Callable[[Rows], T],
        prepare: Callable[["psycopg.Connection"], None] = lambda _connection: None,
        *,
        write: bool = True,
        durable: bool = True,
    ) -> T:
        """Do `work` in a transaction, for which `prepare` gets the connection first.

        Without `write`, each statement is a transaction of its own that is not `durable`.
        If a connection is lost, `work` runs again. One that is not `durable` does not wait for the
        disk, and is lost if the database itself crashes within the next second. Raises
        DatabaseError, and ConfigError without psycopg.
        """
        check_installed()
        import psycopg
        from psycopg_pool import PoolTimeout

        if time.monotonic() < self._paused_until:
            raise DatabaseError(self._last_problem)
        for pause in (*RETRY_SECONDS, None):  # None: no attempt follows
            try:
                with self._opened_pool().connection() as connection:
                    prepare(connection)
                    result = (
                        _transact(connection, work, durable=durable)
                        if write
                        else work(PostgresRows(connection))
                    )
                self.answered = time.monotonic()
                return result
            except PoolTimeout as error:
                raise self._paused(error) from error
            except psycopg.OperationalError as error:  # lost, or a deadlock
                if pause is None:
                    raise self._paused(error) from error
                time.sleep(pause)
                self._opened_pool().check()  # more may be lost; only then is it worth a round trip
            except psycopg.Error as error:
                raise DatabaseError(f"{self.address}: {one_line(error)}") from error
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections; the next transaction opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def connect(self) -> "psycopg.Connection":
        """A new connection, which the caller closes; raises psycopg's OperationalError."""
        import psycopg

        connection = psycopg.connect(self._parameters(), **_CONNECTION)
        try:
            connection.execute(_SESSION)
        except BaseException:  # nobody else could close it
            connection.close()
            raise
        return connection

    def _opened_pool(self) -> "ConnectionPool[psycopg.Connection]":
        """The connections of all threads; the first transaction makes the pool."""
        from psycopg_pool import ConnectionPool

        with self._lock:
            if self._pool is None:
                logging.getLogger("psycopg").setLevel(logging.ERROR)  # `_paused` tells it
                self._pool = ConnectionPool(
                    self._parameters(),
                    kwargs=_CONNECTION,
                    min_size=0,
                    max_size=MAX_CONNECTIONS,
                    open=True,
                    configure=_configure,
                    timeout=WAIT_SECONDS,
                    reconnect_timeout=WAIT_SECONDS,
                )
                weakref.finalize(self, self._pool.close)
            return self._pool

    def _parameters(self) -> str:
        """Where and how to connect; what the user's URL says replaces our options."""
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        secret = {"password": self.address.password} if self.address.password else {}
        return make_conninfo("", **(_OPTIONS | conninfo_to_dict(self.address.url) | secret))

    def _paused(self, error: Exception) -> DatabaseError:
        """The error for the user; until `PAUSE_SECONDS` later each transaction gets it, too."""
        import psycopg

        try:
            self.connect().close()  # the pool does not tell why it has no connection: this does
        except psycopg.OperationalError as reason:
            error = reason
        problem = one_line(error)
        if "password authentication failed" in problem or "no password supplied" in problem:
            problem += ". `shepherd database password` stores the password."
        self._last_problem = f"{self.address}: {problem}"
        self._paused_until = time.monotonic() + PAUSE_SECONDS
        return DatabaseError(self._last_problem)


class PostgresDatabase(Struct, eq=False):
    """A `Database` in PostgreSQL: the tables of `store`.

    `migrations` are the statements from each version to the next; tables of a higher version are
    not used. `failure` is the error for a database that can't be used. `durable` is that of
    `PostgresServer.run`.
    """

    server: PostgresServer
    store: str
    migrations: Sequence[str]
    failure: type[ShepherdError]
    durable: bool = True
    _is_prepared: bool = False

    def run(self, work: Callable[[Rows], T], *, write: bool = True) -> T:
        """See `Database`."""
        try:
            return self.server.run(work, self._prepare, write=write, durable=self.durable)
        except DatabaseError as error:
            raise self.failure(str(error)) from error

    def migrate(self) -> None:
        """Bring the tables to the current version; raises the error of the store."""
        self.run(lambda _rows: None, write=False)

    def close(self) -> None:
        """The connections stay open for the other stores."""

    def _prepare(self, connection: "psycopg.Connection") -> None:
        """Bring the tables to the current version.

        A role that may not make tables can use those that are current.
        """
        if self._is_prepared:
            return
        version, current = self._version(connection), len(self.migrations)
        if version < current:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
                if not _has_versions(connection):
                    connection.execute(_BASE)
                version = self._version(connection)  # another process may have migrated meanwhile
                for migration in self.migrations[version:]:
                    connection.execute(cast(LiteralString, migration))
                version = max(version, current)  # higher if a newer Shepherd was faster
                connection.execute(_SET_VERSION, (self.store, version))
        if version > current:
            raise DatabaseError(
                f"{self.server.address}: the tables were written by a newer Shepherd; "
                "update this one too"
            )
        self._is_prepared = True

    def _version(self, connection: "psycopg.Connection") -> int:
        """The version of the existing tables; 0 if there are none."""
        if not _has_versions(connection):
            return 0
        row = connection.execute(_VERSION, (self.store,)).fetchone()
        return 0 if row is None else int(row[0])


def check_installed() -> None:
    """Raise ConfigError if psycopg can't be imported."""
    try:
        import_module("psycopg_pool")
    except ImportError as error:
        raise ConfigError(INSTALL) from error


def _configure(connection: "psycopg.Connection") -> None:
    connection.execute(f"{_SESSION}; SET synchronous_commit TO off")


def _transact(connection: "psycopg.Connection", work: Callable[[Rows], T], *, durable: bool) -> T:
    """Do `work` in a transaction; the pool rolls it back if that fails.

    What needs no answer travels with the next statement that does. psycopg's own transactions wait
    for an answer at each of their ends.
    """
    with connection.pipeline():
        connection.execute("BEGIN")
        if durable:  # as the database is set up
            connection.execute("SET LOCAL synchronous_commit TO DEFAULT")
        result = work(PostgresRows(connection))
        connection.execute("COMMIT")
    return result


def _has_versions(connection: "psycopg.Connection") -> bool:
    """Whether the table of versions exists, which the first migration of any store makes."""
    row = connection.execute(_EXISTS).fetchone()
    return row is not None and bool(row[0])
