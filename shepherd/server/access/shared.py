"""The keys, their limits and their usage in PostgreSQL; limits also in a file for many servers."""

import logging
from pathlib import Path

from shepherd.database import DatabaseFile
from shepherd.server.access import shared_keys, shared_limits, usage
from shepherd.server.access.keys import KeyStoreError
from shepherd.server.access.meter import Meter
from shepherd.server.access.shared_keys import DatabaseKeys
from shepherd.server.access.shared_limits import LimitsError, SharedLimits
from shepherd.server.access.usage import UsageError, UsageStore
from shepherd.storage.postgres import PostgresDatabase, PostgresServer

logger = logging.getLogger(__name__)


def keys_in(server: PostgresServer) -> DatabaseKeys:
    """The keys in a database."""
    return DatabaseKeys(key_database_in(server))


def key_database_in(server: PostgresServer) -> PostgresDatabase:
    """The tables of the keys in a database."""
    return server.database("keys", shared_keys.MIGRATIONS, KeyStoreError)


def usage_in(server: PostgresServer) -> PostgresDatabase:
    """The usage in a database."""
    return server.database("usage", usage.MIGRATIONS, UsageError)


def limits_in(server: PostgresServer) -> PostgresDatabase:
    """What counts against the limits of keys in a database."""
    return server.database("limits", shared_limits.MIGRATIONS, LimitsError)


def meter_in(server: PostgresServer, days: int) -> Meter:
    """Counts and limits the use of keys across the servers of a database.

    Usage is kept for `days`.
    """
    store = UsageStore(usage_in(server), days)
    limits = SharedLimits(limits_in(server), store, shared_limits.database_clock)
    return Meter(store, limits)


def meter_in_files(usage_file: Path, limits_file: Path, days: int) -> Meter:
    """As `meter_in` for the servers of one user on one machine, in two SQLite files."""
    store = UsageStore(usage_file, days)
    database = DatabaseFile(limits_file, shared_limits.MIGRATIONS, _log_damage, LimitsError)
    return Meter(store, SharedLimits(database, store, threads=1))


def _log_damage(error: Exception, aside: Path) -> None:
    logger.error("The file of limits was damaged (%s). The old file is %s", error, aside)
