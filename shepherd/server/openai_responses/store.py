"""Responses that can be used later, each by the key that made it."""

import asyncio
import logging
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server.errors import STORE_UNAVAILABLE, ApiError
from shepherd.server.openai_responses import rows
from shepherd.server.openai_responses.rows import Chain, StoredResponse
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Database, Rows

T = TypeVar("T")
logger = logging.getLogger(__name__)

DAY_SECONDS = 86_400
MIB = 1_048_576
SAVES_PER_PRUNING = 64
"""Pruning looks at every response, and is therefore not done each time."""


class ResponseStoreError(ShepherdError):
    """The stored responses can't be read or written; the message names the file or the database."""


class ResponseStore:
    """The responses in a database, or in the file at a path.

    Without a place they are in a file that ends with the process.

    Responses that were not used for `days` can't be seen any more. Of those above `max_mib` the
    ones that were used least recently are deleted. One thread does the work in the order of the
    calls. When the database can't be used, `save` raises ResponseStoreError, and the others
    ApiError.
    """

    def __init__(self, place: Path | Database | None, days: int, max_mib: int) -> None:
        self.enabled = days > 0 and max_mib > 0
        self._place = place
        self._days = days
        self._max_bytes = max_mib * MIB
        self._saves = self._saved_bytes = 0
        self._thread = ThreadPoolExecutor(1, "responses")
        self._database: Database | None = None

    async def save(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, or replace it."""
        size = await self._do(partial(rows.save, owner=owner, response=response, now=_now()))
        self._saved_bytes += size
        self._saves += 1
        if self._saves % SAVES_PER_PRUNING == 1 or self._saved_bytes > self._max_bytes // 8:
            self._saved_bytes = 0
            oldest = self._oldest()
            await self._do(partial(rows.prune, oldest=oldest, max_bytes=self._max_bytes))

    async def load(self, owner: str, id: str) -> StoredResponse | None:
        """The response; None if there is none, or it is another key's."""
        return await self._read(partial(rows.load, access=self._access(owner), id=id))

    async def load_chain(self, owner: str, id: str, max_bytes: int) -> Chain:
        """The conversation that ends with a response."""
        access, now = self._access(owner), _now()
        work = partial(rows.load_chain, access=access, id=id, max_bytes=max_bytes, now=now)
        return await self._read(work)

    async def find_items(self, owner: str, ids: Iterable[str]) -> dict[str, JsonObject]:
        """The items of these ids in the responses of the key."""
        return await self._read(partial(rows.find_items, access=self._access(owner), ids=ids))

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response; False if there is none, or it is another key's."""
        return await self._read(partial(rows.delete, access=self._access(owner), id=id))

    def _access(self, owner: str) -> rows.Access:
        return rows.Access(owner, self._oldest())

    def _oldest(self) -> int:
        return _now() - self._days * DAY_SECONDS

    async def _read(self, work: Callable[[Rows], T]) -> T:
        try:
            return await self._do(work)
        except ResponseStoreError as error:
            logger.error("Stored responses can't be used: %s", error)
            message = "Stored responses can't be used at the moment; the server's log says why."
            raise ApiError(503, message, STORE_UNAVAILABLE) from error

    async def _do(self, work: Callable[[Rows], T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(self._run, work))

    def _run(self, work: Callable[[Rows], T]) -> T:
        """Runs in the thread."""
        if self._database is None:
            self._database = self._open()
        return self._database.run(work)

    def _open(self) -> Database:
        database = self._place
        if isinstance(database, Path | None):
            database = self._open_file(database)
        closing = weakref.finalize(self, _close, self._thread, database)
        closing.atexit = False
        return database

    def _open_file(self, path: Path | None) -> Database:
        if path is None:
            folder = tempfile.TemporaryDirectory(prefix="shepherd-responses-")
            weakref.finalize(self, folder.cleanup)
            path = Path(folder.name) / "responses.db"
        return open_responses(path)


def open_responses(path: Path) -> Database:
    """The responses in the file at `path`."""
    return DatabaseFile(path, rows.MIGRATIONS, _log_damage, ResponseStoreError)


def responses_in(server: PostgresServer) -> PostgresDatabase:
    """The responses in PostgreSQL."""
    return server.database("responses", rows.MIGRATIONS, ResponseStoreError)


def _close(thread: ThreadPoolExecutor, database: Database) -> None:
    """Close the database in its own thread, which then ends."""
    thread.submit(database.close)
    thread.shutdown(wait=False)


def _log_damage(error: Exception, aside: Path) -> None:
    logger.error("The stored responses were damaged (%s). The old file is %s", error, aside)


def _now() -> int:
    return int(time.time())
