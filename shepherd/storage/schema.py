"""The tables of each store in PostgreSQL, and their versions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, LiteralString, cast

if TYPE_CHECKING:
    import psycopg

SCHEMA = "shepherd"
_LOCK = 0x5348_4550
"""The advisory lock of migrations: one process migrates at a time."""

_BASE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.versions (store TEXT PRIMARY KEY, version BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS {SCHEMA}.ledger (
    id TEXT PRIMARY KEY, moment TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS ledger_moment ON {SCHEMA}.ledger (moment);
"""
_EXISTS = f"SELECT to_regclass('{SCHEMA}.ledger') IS NOT NULL"
_VERSION = f"SELECT version FROM {SCHEMA}.versions WHERE store = %s"
_SET_VERSION = (
    f"INSERT INTO {SCHEMA}.versions VALUES (%s, %s) "
    "ON CONFLICT (store) DO UPDATE SET version = excluded.version"
)


def prepare(connection: "psycopg.Connection", store: str, migrations: Sequence[str]) -> bool:
    """Bring the tables of a store to the current version; False if they have a newer one.

    A role that may not make tables can use those that are current.
    """
    version = _version(connection, store)
    if version < len(migrations):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if not _exists(connection):
                connection.execute(_BASE)
            version = _version(connection, store)
            for migration in migrations[version:]:
                connection.execute(cast(LiteralString, migration))
            version = max(version, len(migrations))
            connection.execute(_SET_VERSION, (store, version))
    return version == len(migrations)


def _exists(connection: "psycopg.Connection") -> bool:
    row = connection.execute(_EXISTS).fetchone()
    return row is not None and bool(row[0])


def _version(connection: "psycopg.Connection", store: str) -> int:
    """The version of the existing tables; 0 if there are none."""
    row = connection.execute(_VERSION, (store,)).fetchone() if _exists(connection) else None
    return 0 if row is None else int(row[0])
