"""Responses that can be used later, each by the key that made it."""

import asyncio
import json
import logging
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server.errors import STORE_UNAVAILABLE, ApiError
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Database, Rows, close_garbage

MAX_CHAIN = 10_000
"""Responses in a row that a conversation may consist of."""

MIGRATIONS = (
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        used BIGINT NOT NULL,
        previous TEXT,
        bytes BIGINT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX responses_used ON responses (used);
    CREATE TABLE items (
        response TEXT NOT NULL,
        position BIGINT NOT NULL,
        output BIGINT NOT NULL,
        id TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (response, position)
    );
    CREATE INDEX items_id ON items (id);
    """,
)

_VISIBLE = "owner = :owner AND used >= :oldest"
_CHAIN = f"""
WITH RECURSIVE chain (id, previous, bytes, depth) AS (
    SELECT id, previous, bytes, 0 FROM responses WHERE id = :id AND {_VISIBLE}
    UNION ALL
    SELECT r.id, r.previous, r.bytes, depth + 1 FROM chain JOIN responses AS r
    ON r.id = chain.previous WHERE {_VISIBLE} AND depth < {MAX_CHAIN}
)
"""
_OVER_LIMIT = """
SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY used DESC, id) AS total FROM responses)
AS newest WHERE total > ?
"""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response object, and the items of the request that led to it."""

    body: JsonObject
    input: Sequence[JsonObject]

    @property
    def id(self) -> str:
        return str(self.body["id"])


@dataclass(frozen=True, slots=True)
class Access:
    """Which responses can be seen: those of one key that were used since a time."""

    owner: str
    oldest: int

    def of(self, id: str) -> dict[str, Any]:
        """The values for a statement about the response or item `id`."""
        return {"id": id, "owner": self.owner, "oldest": self.oldest}


@dataclass(frozen=True, slots=True)
class Chain:
    """The items of a response and of all before it, as far as they are within the limit.

    `missing` is the id of a response that is needed and is not kept.
    """

    items: Sequence[JsonObject] = ()
    bytes: int = 0
    missing: str = ""


def save(database: Rows, owner: str, response: StoredResponse, now: int) -> int:
    """Keep a response, or replace it; returns its bytes."""
    output: Sequence[JsonObject] = response.body["output"]
    body = json.dumps({**response.body, "output": []})
    rows = [(0, item) for item in response.input] + [(1, item) for item in output]
    texts = [(kind, str(item["id"]), json.dumps(item)) for kind, item in rows]
    size = len(body) + sum(len(text) for *_, text in texts)
    _delete(database, response.id)
    database.execute(
        "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)",
        (response.id, owner, now, response.body["previous_response_id"], size, body),
    )
    database.executemany(
        "INSERT INTO items VALUES (?, ?, ?, ?, ?)",
        ((response.id, position, *row) for position, row in enumerate(texts)),
    )
    return size


def load(database: Rows, access: Access, id: str) -> StoredResponse | None:
    """The response, None if it can't be seen."""
    query = f"SELECT body FROM responses WHERE id = :id AND {_VISIBLE}"
    row = database.execute(query, access.of(id)).fetchone()
    if row is None:
        return None
    items = database.execute(
        "SELECT output, body FROM items WHERE response = ? ORDER BY position", (id,)
    ).fetchall()
    output = [json.loads(text) for is_output, text in items if is_output]
    sent = [json.loads(text) for is_output, text in items if not is_output]
    return StoredResponse({**json.loads(row[0]), "output": output}, sent)


def load_chain(database: Rows, access: Access, id: str, max_bytes: int, now: int) -> Chain:
    """The conversation that ends with a response; all of its responses count as used."""
    query = f"{_CHAIN} SELECT id, previous, bytes FROM chain ORDER BY depth DESC"
    links = database.execute(query, access.of(id)).fetchall()
    missing = links[0][1] if links else id
    size = sum(link[2] for link in links)
    if missing is not None or size > max_bytes:
        return Chain(bytes=size, missing=missing or "")
    database.executemany(
        "UPDATE responses SET used = ? WHERE id = ?", ((now, link[0]) for link in links)
    )
    query = (
        f"{_CHAIN} SELECT items.body FROM chain JOIN items ON response = chain.id "
        "ORDER BY depth DESC, position"
    )
    rows = database.execute(query, access.of(id))
    return Chain([json.loads(text) for (text,) in rows], size)


def find_items(database: Rows, access: Access, ids: Iterable[str]) -> dict[str, JsonObject]:
    """The items of these ids in responses that can be seen."""
    query = (
        "SELECT items.body FROM items JOIN responses ON responses.id = response "
        f"WHERE items.id = :id AND {_VISIBLE} ORDER BY used DESC LIMIT 1"
    )
    rows = {item: database.execute(query, access.of(item)).fetchone() for item in ids}
    return {item: json.loads(row[0]) for item, row in rows.items() if row is not None}


def delete(database: Rows, access: Access, id: str) -> bool:
    """Delete a response and its items; False if it can't be seen."""
    query = f"SELECT 1 FROM responses WHERE id = :id AND {_VISIBLE}"
    if database.execute(query, access.of(id)).fetchone() is None:
        return False
    _delete(database, id)
    return True


def prune(database: Rows, oldest: int, max_bytes: int) -> None:
    """Delete what was not used since `oldest`, and what was used least beyond `max_bytes`."""
    expired = database.execute("SELECT id FROM responses WHERE used < ?", (oldest,)).fetchall()
    expired += database.execute(_OVER_LIMIT, (max_bytes,)).fetchall()
    for (response,) in expired:
        _delete(database, response)


def _delete(database: Rows, id: str) -> None:
    database.execute("DELETE FROM responses WHERE id = ?", (id,))
    database.execute("DELETE FROM items WHERE response = ?", (id,))


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

    def __init__(
        self,
        place: Path | Database | None,
        days: int,
        max_mib: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self.enabled = days > 0 and max_mib > 0
        self._place = place
        self._days = days
        self._max_bytes = max_mib * MIB
        self._saves = self._saved_bytes = 0
        self._thread = ThreadPoolExecutor(1, "responses")
        self._database: Database | None = None

    async def save(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, or replace it."""
        size = await self._do(partial(save, owner=owner, response=response, now=self._now()))
        self._saved_bytes += size
        self._saves += 1
        if self._saves % SAVES_PER_PRUNING == 1 or self._saved_bytes > self._max_bytes // 8:
            self._saved_bytes = 0
            oldest = self._oldest()
            await self._do(partial(prune, oldest=oldest, max_bytes=self._max_bytes))

    async def load(self, owner: str, id: str) -> StoredResponse | None:
        """The response; None if there is none, or it is another key's."""
        return await self._read(partial(load, access=self._access(owner), id=id))

    async def load_chain(self, owner: str, id: str, max_bytes: int) -> Chain:
        """The conversation that ends with a response."""
        access, now = self._access(owner), self._now()
        work = partial(load_chain, access=access, id=id, max_bytes=max_bytes, now=now)
        return await self._read(work)

    async def find_items(self, owner: str, ids: Iterable[str]) -> dict[str, JsonObject]:
        """The items of these ids in the responses of the key."""
        return await self._read(partial(find_items, access=self._access(owner), ids=ids))

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response; False if there is none, or it is another key's."""
        return await self._read(partial(delete, access=self._access(owner), id=id))

    def _access(self, owner: str) -> Access:
        return Access(owner, self._oldest())

    def _now(self) -> int:
        return int(self._clock())

    def _oldest(self) -> int:
        return self._now() - self._days * DAY_SECONDS

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
        closing = weakref.finalize(self, close_garbage, self._thread, database)
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
    return DatabaseFile(path, MIGRATIONS, _log_damage, ResponseStoreError)


def responses_in(server: PostgresServer) -> PostgresDatabase:
    """The responses in PostgreSQL."""
    return server.database("responses", MIGRATIONS, ResponseStoreError)


def _log_damage(error: Exception, aside: Path) -> None:
    logger.error("The stored responses were damaged (%s). The old file is %s", error, aside)
