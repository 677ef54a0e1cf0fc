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
from sqlite3 import Connection
from typing import TypeVar

from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses import rows
from shepherd.server.openai_responses.rows import Chain, StoredResponse

T = TypeVar("T")
logger = logging.getLogger(__name__)

DAY_SECONDS = 86_400
MIB = 1_048_576
SAVES_PER_PRUNING = 64
"""Pruning looks at every response, and is therefore not done each time."""


class ResponseStoreError(ShepherdError):
    """The stored responses can't be read or written; the message names the file."""


class ResponseStore:
    """The responses in the file at `path`; without a path, in a file that ends with the process.

    Responses that were not used for `days` can't be seen any more. Of those above `max_mib` the
    ones that were used least recently are deleted. One thread does the work in the order of the
    calls. When the file can't be used, `save` raises ResponseStoreError, and the others ApiError.
    """

    def __init__(self, path: Path | None, days: int, max_mib: int) -> None:
        self.enabled = days > 0 and max_mib > 0
        self._path = path
        self._days = days
        self._max_bytes = max_mib * MIB
        self._saves = self._saved_bytes = 0
        self._thread = ThreadPoolExecutor(1, "responses")
        self._file: DatabaseFile | None = None

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

    async def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._do(work)
        except ResponseStoreError as error:
            logger.error("Stored responses can't be used: %s", error)
            message = "Stored responses can't be used at the moment; the server's log says why."
            raise ApiError(503, message, "store_unavailable") from error

    async def _do(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(self._run, work))

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Runs in the thread."""
        if self._file is None:
            self._file = self._open()
        return self._file.run(work)

    def _open(self) -> DatabaseFile:
        path = self._path
        if path is None:
            folder = tempfile.TemporaryDirectory(prefix="shepherd-responses-")
            weakref.finalize(self, folder.cleanup)
            path = Path(folder.name) / "responses.db"
        file = DatabaseFile(path, rows.MIGRATIONS, _log_damage, ResponseStoreError)
        closing = weakref.finalize(self, _close, self._thread, file)
        closing.atexit = False
        return file


def _close(thread: ThreadPoolExecutor, file: DatabaseFile) -> None:
    """Close the file in its own thread, which then ends."""
    thread.submit(file.close)
    thread.shutdown(wait=False)


def _log_damage(error: Exception, aside: Path) -> None:
    logger.error("The stored responses were damaged (%s). The old file is %s", error, aside)


def _now() -> int:
    return int(time.time())
