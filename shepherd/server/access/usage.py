"""Who used how much: a database that is written by a thread of its own, and `GET /v1/usage`."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from fastapi import APIRouter
from msgspec import Struct, structs
from starlette.requests import Request

from shepherd import database, errors
from shepherd.server.access.key import KeyScope
from shepherd.server.errors import ApiError
from shepherd.server.record import current_key
from shepherd.server.responses import JsonResponse
from shepherd.storage.rows import Database, Rows, Values, close_garbage

T = TypeVar("T")
logger = logging.getLogger(__name__)

MIGRATIONS = (
    """
    CREATE TABLE usage (
        day TEXT NOT NULL,
        key TEXT NOT NULL,
        model TEXT NOT NULL,
        requests BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        cost DOUBLE PRECISION,
        PRIMARY KEY (day, key, model)
    );
    CREATE TABLE last_used (key TEXT PRIMARY KEY, moment BIGINT NOT NULL);
    """,
)
MAX_WAITING = 20_000
"""Writes that are kept while the database can't be used; the oldest are then lost."""


class UsageError(errors.ShepherdError):
    """The usage can't be read or written; the message names the file or the database."""


Write: TypeAlias = tuple[str, Values]
"""A statement with its values."""

_NOTE_USE = (
    "INSERT INTO last_used VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET "
    "moment = excluded.moment WHERE last_used.moment < excluded.moment"
)
_ADD = (
    "INSERT INTO usage VALUES (:day, :key, :model, :requests, :prompt_tokens, :cached_tokens, "
    ":completion_tokens, :cost) ON CONFLICT (day, key, model) DO UPDATE SET "
    "requests = usage.requests + excluded.requests, "
    "prompt_tokens = usage.prompt_tokens + excluded.prompt_tokens, "
    "cached_tokens = usage.cached_tokens + excluded.cached_tokens, "
    "completion_tokens = usage.completion_tokens + excluded.completion_tokens, "
    # a cost that is not known leaves the sum as it is
    "cost = coalesce(usage.cost + excluded.cost, usage.cost, excluded.cost)"
)


class Usage(Struct, frozen=True):
    """What a key used of a model on a day (UTC); `cost` in US dollars, None if it is not known."""

    day: str
    key: str
    model: str
    requests: int = 1
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


def today() -> str:
    """The day of a usage that begins now."""
    return datetime.now(UTC).date().isoformat()


class UsageStore:
    """The usage in a database, or in the file at a path.

    Writing happens in a thread. It never fails or delays a request: a failure is logged once, and
    the next write tries again.
    """

    def __init__(self, place: Path | Database) -> None:
        self._database = open_usage(place) if isinstance(place, Path) else place
        self._thread = ThreadPoolExecutor(1, "usage")
        self._waiting: deque[Write] = deque(maxlen=MAX_WAITING)
        self._noted: dict[str, int] = {}
        self._was_failure_logged = False
        closing = weakref.finalize(self, close_garbage, self._thread, self._database)
        closing.atexit = False  # at the exit the thread may still write

    def delete_older(self, days: int) -> None:
        """Forget what was used more than `days` ago."""
        oldest = (datetime.now(UTC) - timedelta(days=days)).date().isoformat()
        self._write_later("DELETE FROM usage WHERE day < ?", (oldest,))

    def note_use(self, key: str, moment: int) -> None:
        """Note that a key was used at a Unix time."""
        if self._noted.get(key) != moment:  # once a second is enough
            self._noted[key] = moment
            self._write_later(_NOTE_USE, (key, moment))

    def add(self, usage: Usage) -> None:
        """Add to what was used."""
        self._write_later(_ADD, structs.asdict(usage))

    def read(self, days: int, key: str | None = None) -> Future[list[Usage]]:
        """The usage of the last days, the newest first; the future may raise UsageError."""
        oldest = (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
        return self._thread.submit(self._read, lambda rows: _usage_since(rows, oldest, key))

    def last_used(self) -> dict[str, int]:
        """When each key was last used, as Unix times; raises UsageError."""
        statement = "SELECT key, moment FROM last_used"
        return self._thread.submit(
            self._read, lambda rows: dict(rows.execute(statement).fetchall())
        ).result()

    def flush(self) -> None:
        """Wait until all is written."""
        self._thread.submit(int).result()  # stands behind all that was submitted before

    def _write_later(self, statement: str, values: Values) -> None:
        """Write in the thread, together with all that waits by then."""
        self._waiting.append((statement, values))
        self._thread.submit(self._write)

    def _write(self) -> None:
        """Runs in the thread; what can't be written stays for the next time."""
        try:
            self._write_waiting()
        except UsageError as error:
            if not self._was_failure_logged:  # once, until a write works again
                logger.error("Usage is not written: %s", error)
            self._was_failure_logged = True
        else:
            self._was_failure_logged = False

    def _read(self, work: Callable[[Rows], T]) -> T:
        """Runs in the thread; what was used before is seen, also if writing failed then."""
        self._write_waiting()
        return self._database.run(work, write=False)

    def _write_waiting(self) -> None:
        """Write all that waits in one transaction; after an error it waits for the next time."""
        if writes := list(self._waiting):
            self._database.run(partial(_execute, writes))
            # only now, because writing can fail; what came meanwhile stays
            while self._waiting.popleft() is not writes[-1]:
                pass


def open_usage(path: Path) -> Database:
    """The usage in the file at `path`."""
    on_damage = partial(logger.error, "The usage file was damaged (%s). The old file is %s")
    return database.DatabaseFile(path, MIGRATIONS, on_damage, UsageError)


def _execute(writes: Sequence[Write], rows: Rows) -> None:
    """Run the statements; `writes` comes first to be bound."""
    for statement, values in writes:
        rows.execute(statement, values)


def _usage_since(rows: Rows, oldest: str, key: str | None) -> list[Usage]:
    """The usage from a day on, of one key, or of all for None."""
    used = rows.execute(
        "SELECT day, key, model, requests, prompt_tokens, cached_tokens, completion_tokens, cost "
        "FROM usage WHERE day >= ? AND (CAST(? AS TEXT) IS NULL OR key = ?) "
        "ORDER BY day DESC, key, model",
        (oldest, key, key),
    )
    return [Usage(*row) for row in used]


USAGE_PATH = "/v1/usage"
DEFAULT_DAYS, MAX_DAYS = 30, 36_500


def usage_router(store: UsageStore) -> APIRouter:
    """The usage route."""
    router = APIRouter()

    @router.get(USAGE_PATH)
    async def read_usage(request: Request) -> JsonResponse:
        """Requests, tokens and cost per day (UTC), key and model. Only with keys.

        `cost` is in US dollars, `null` where no price is known.
        `?days=` limits the days (30), and `?key=` the keys. Only the scope `admin` sees those of
        other keys.
        """
        name = _visible_key(request.query_params.get("key"))
        days = _days(request.query_params.get("days", str(DEFAULT_DAYS)))
        rows = await asyncio.wrap_future(store.read(days, name))
        return JsonResponse({"object": "list", "data": [structs.asdict(row) for row in rows]})

    return router


def _visible_key(name: str | None) -> str | None:
    """The name of the key whose usage is shown, None for all; raises ApiError."""
    key = current_key()
    if key is None or KeyScope.ADMIN in key.scopes:
        return name
    if name not in (None, key.name):  # without a name, a key sees its own usage
        message = "Only a key with the scope admin sees the usage of other keys."
        raise ApiError(403, message, "insufficient_scope", "key")
    return key.name


def _days(text: str) -> int:
    """The number of days in a query; raises ApiError."""
    is_number = text.isascii() and text.isdigit() and len(text) < 9
    if not is_number or not 1 <= int(text) <= MAX_DAYS:
        message = f"days must be a whole number from 1 to {MAX_DAYS}"
        raise ApiError(400, message, "invalid_value", "days")
    return int(text)
