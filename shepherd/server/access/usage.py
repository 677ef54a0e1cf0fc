"""Who used how much: an SQLite file that is written by a thread of its own."""

import logging
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlite3 import Connection

from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError

logger = logging.getLogger(__name__)

MIGRATIONS = (
    """
    CREATE TABLE usage (
        day TEXT NOT NULL,
        key TEXT NOT NULL,
        model TEXT NOT NULL,
        requests INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        PRIMARY KEY (day, key, model)
    ) WITHOUT ROWID;
    CREATE TABLE charges (
        key TEXT NOT NULL,
        resource TEXT NOT NULL,
        moment INTEGER NOT NULL,
        amount INTEGER NOT NULL,
        PRIMARY KEY (key, resource, moment)
    ) WITHOUT ROWID;
    CREATE TABLE last_used (key TEXT PRIMARY KEY, moment INTEGER NOT NULL) WITHOUT ROWID;
    """,
)
CHARGE_SECONDS = 60
"""Charges of the same time, rounded up to this, are one row."""
DAY_SECONDS = 86_400


class UsageError(ShepherdError):
    """The usage file can't be read or written; the message names it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a key used of a model on a day (UTC)."""

    day: str
    key: str
    model: str
    requests: int = 1
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Charge:
    """What counts against a limit of a key, at a Unix time."""

    key: str
    resource: str
    moment: int
    amount: int


class UsageStore:
    """The usage in the file at `path`; rows older than `days` are deleted at the start.

    Writing happens in a thread. It never fails or delays a request: a failure is logged once.
    """

    def __init__(self, path: Path, days: int) -> None:
        self._file = DatabaseFile(path, MIGRATIONS, _log_damage, UsageError)
        self._days = days
        self._thread = ThreadPoolExecutor(1, "usage")
        self._failed = False
        closing = weakref.finalize(self, _close, self._thread, self._file)
        closing.atexit = False

    def load_charges(self, now: float) -> Sequence[Charge]:
        """The charges of the last day; raises UsageError."""
        return self._thread.submit(self._file.run, lambda c: _load(c, now, self._days)).result()

    def charge(self, charge: Charge) -> None:
        """Keep a charge, and that the key was used."""
        if charge.amount:
            self._later(lambda connection: _charge(connection, charge))

    def add(self, usage: Usage) -> None:
        """Add to what was used."""
        self._later(lambda connection: _add(connection, usage))

    def read(self, days: int, key: str | None = None) -> Future[list[Usage]]:
        """The usage of the last days, the newest first; the future may raise UsageError."""
        oldest = (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
        return self._thread.submit(
            self._file.run, lambda connection: _read(connection, oldest, key), write=False
        )

    def last_used(self) -> dict[str, int]:
        """When each key was last used, as Unix times; raises UsageError."""
        work = self._thread.submit(
            self._file.run,
            lambda c: dict(c.execute("SELECT key, moment FROM last_used").fetchall()),
            write=False,
        )
        return work.result()

    def flush(self) -> None:
        """Wait until all is written."""
        self._thread.submit(int).result()

    def _later(self, work: Callable[[Connection], None]) -> None:
        self._thread.submit(self._run, work)

    def _run(self, work: Callable[[Connection], None]) -> None:
        """Runs in the thread."""
        try:
            self._file.run(work)
        except UsageError as error:
            if not self._failed:
                logger.error("Usage is not written: %s", error)
            self._failed = True
        else:
            self._failed = False


def _load(connection: Connection, now: float, days: int) -> list[Charge]:
    """The charges of the last day; older ones, and usage that is too old, are deleted."""
    oldest = (datetime.fromtimestamp(now, UTC) - timedelta(days=days)).date().isoformat()
    connection.execute("DELETE FROM usage WHERE day < ?", (oldest,))
    oldest_charge = int(now) - 2 * DAY_SECONDS
    connection.execute("DELETE FROM charges WHERE moment < ?", (oldest_charge,))
    rows = connection.execute("SELECT key, resource, moment, amount FROM charges ORDER BY moment")
    return [Charge(*row) for row in rows]


def _charge(connection: Connection, charge: Charge) -> None:
    moment = (charge.moment // CHARGE_SECONDS + 1) * CHARGE_SECONDS
    connection.execute(
        "INSERT INTO charges VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "amount = amount + excluded.amount",
        (charge.key, charge.resource, moment, charge.amount),
    )
    connection.execute(
        "INSERT INTO last_used VALUES (?, ?) ON CONFLICT DO UPDATE SET "
        "moment = max(moment, excluded.moment)",
        (charge.key, charge.moment),
    )


def _add(connection: Connection, usage: Usage) -> None:
    connection.execute(
        "INSERT INTO usage VALUES (:day, :key, :model, :requests, :prompt_tokens, :cached_tokens, "
        ":completion_tokens) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, "
        "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
        "cached_tokens = cached_tokens + excluded.cached_tokens, "
        "completion_tokens = completion_tokens + excluded.completion_tokens",
        asdict(usage),
    )


def _read(connection: Connection, oldest: str, key: str | None) -> list[Usage]:
    rows = connection.execute(
        "SELECT * FROM usage WHERE day >= ? AND (? IS NULL OR key = ?) "
        "ORDER BY day DESC, key, model",
        (oldest, key, key),
    )
    return [Usage(*row) for row in rows]


def _close(thread: ThreadPoolExecutor, file: DatabaseFile) -> None:
    """Close the file in its own thread, which then ends."""
    thread.submit(file.close)
    thread.shutdown(wait=False)


def _log_damage(error: Exception, aside: Path) -> None:
    logger.error("The usage file was damaged (%s). The old file is %s", error, aside)
