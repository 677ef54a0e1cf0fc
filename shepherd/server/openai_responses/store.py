"""Responses that can be used later, each by the key that made it."""

import asyncio
import json
import logging
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from shepherd.database import DatabaseFile
from shepherd.errors import ShepherdError
from shepherd.messages import JsonObject
from shepherd.server.errors import STORE_UNAVAILABLE, ApiError
from shepherd.storage.postgres import PostgresDatabase, PostgresServer
from shepherd.storage.rows import Database, Rows, close_garbage

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger(__name__)

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

_Values: TypeAlias = dict[str, Any]
_VISIBLE = "owner = :owner AND used >= :oldest"
"""What a key can see: its own responses that were used since a time."""

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


class StoredResponse(Struct, frozen=True):
    """A response object, and the items of the request that led to it."""

    body: JsonObject
    input: Sequence[JsonObject]

    @property
    def id(self) -> str:
        return str(self.body["id"])


class Chain(Struct, frozen=True):
    """The items of a response and of all before it, as far as they are within the limit.

    `missing` is the id of a response that is needed and is not kept.
    """

    items: Sequence[JsonObject] = ()
    bytes: int = 0
    missing: str = ""


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
        self._place, self._days, self._max_bytes = place, days, max_mib * MIB
        # when to prune: all saves of this process, and the bytes since the last pruning
        self._saves, self._saved_bytes = 0, 0
        # the database is used in this thread alone, and opened with the first use
        self._thread = ThreadPoolExecutor(1, "responses")
        self._database: Database | None = None

    async def save(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, or replace it."""
        size = await self._do(_save, owner, response, self._now())
        self._saved_bytes += size
        self._saves += 1
        is_due = self._saves % SAVES_PER_PRUNING == 1  # also with the first one of a process
        if is_due or self._saved_bytes > self._max_bytes // 8:
            self._saved_bytes = 0
            await self._do(_prune, self._oldest(), self._max_bytes)

    async def load(self, owner: str, id: str) -> StoredResponse | None:
        """The response; None if there is none, or it is another key's."""
        return await self._read(_load, self._visible(owner), id)

    async def load_chain(self, owner: str, id: str, max_bytes: int) -> Chain:
        """The conversation that ends with a response."""
        return await self._read(_load_chain, self._visible(owner), id, max_bytes, self._now())

    async def find_items(self, owner: str, ids: Iterable[str]) -> dict[str, JsonObject]:
        """The items of these ids in the responses of the key."""
        return await self._read(_find_items, self._visible(owner), ids)

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response; False if there is none, or it is another key's."""
        return await self._read(_delete, self._visible(owner), id)

    def _visible(self, owner: str) -> _Values:
        """The values for `_VISIBLE`."""
        return {"owner": owner, "oldest": self._oldest()}

    def _now(self) -> int:
        return int(self._clock())

    def _oldest(self) -> int:
        """The Unix time since which a response must have been used to be seen."""
        return self._now() - self._days * DAY_SECONDS

    async def _read(
        self, work: Callable[Concatenate[Rows, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`_do` for a route, which reports a store that can't be used as an ApiError."""
        try:
            return await self._do(work, *args, **kwargs)
        except ResponseStoreError as error:
            logger.error("Stored responses can't be used: %s", error)
            message = "Stored responses can't be used at the moment; the server's log says why."
            raise ApiError(503, message, STORE_UNAVAILABLE) from error

    async def _do(
        self, work: Callable[Concatenate[Rows, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of `work` on the tables, in the thread of the store."""

        def run() -> T:
            if self._database is None:  # first use: it is opened in its thread too
                self._database = self._open()
            return self._database.run(lambda rows: work(rows, *args, **kwargs))

        return await asyncio.wrap_future(self._thread.submit(run))

    def _open(self) -> Database:
        """The database; what it holds is let go when nobody holds this store any more."""
        place = self._place
        if place is None:
            folder = tempfile.TemporaryDirectory(prefix="shepherd-responses-")
            weakref.finalize(self, folder.cleanup)
            place = Path(folder.name) / "responses.db"
        database = open_responses(place) if isinstance(place, Path) else place
        closing = weakref.finalize(self, close_garbage, self._thread, database)
        closing.atexit = False  # at the exit the thread may still write
        return database


def open_responses(path: Path) -> Database:
    """The responses in the file at `path`."""
    return DatabaseFile(path, MIGRATIONS, _log_damage, ResponseStoreError)


def responses_in(server: PostgresServer) -> PostgresDatabase:
    """The responses in PostgreSQL."""
    return PostgresDatabase(server, "responses", MIGRATIONS, ResponseStoreError)


def _log_damage(error: Exception, aside: Path) -> None:
    """Log that the file was put aside, and that a new one was begun."""
    logger.error("The stored responses were damaged (%s). The old file is %s", error, aside)


def _save(database: Rows, owner: str, response: StoredResponse, now: int) -> int:
    """Keep a response, or replace it; returns its bytes."""
    output: Sequence[JsonObject] = response.body["output"]
    body = json.dumps({**response.body, "output": []})
    # 0 and 1 tell the items of the request from those of the answer
    items = [(0, item) for item in response.input] + [(1, item) for item in output]
    rows = [(is_output, str(item["id"]), json.dumps(item)) for is_output, item in items]
    size = len(body) + sum(len(text) for *_, text in rows)
    _delete_rows(database, response.id)
    database.execute(
        "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)",
        (response.id, owner, now, response.body["previous_response_id"], size, body),
    )
    database.executemany(
        "INSERT INTO items VALUES (?, ?, ?, ?, ?)",
        ((response.id, position, *row) for position, row in enumerate(rows)),
    )
    return size


def _load(database: Rows, visible: _Values, id: str) -> StoredResponse | None:
    """The response, None if it can't be seen."""
    query = f"SELECT body FROM responses WHERE id = :id AND {_VISIBLE}"
    row = database.execute(query, visible | {"id": id}).fetchone()
    if row is None:
        return None
    items = database.execute(
        "SELECT output, body FROM items WHERE response = ? ORDER BY position", (id,)
    ).fetchall()
    output = [json.loads(text) for is_output, text in items if is_output]
    sent = [json.loads(text) for is_output, text in items if not is_output]
    return StoredResponse({**json.loads(row[0]), "output": output}, sent)


def _load_chain(database: Rows, visible: _Values, id: str, max_bytes: int, now: int) -> Chain:
    """The conversation that ends with a response; all of its responses count as used."""
    query = f"{_CHAIN} SELECT id, previous, bytes FROM chain ORDER BY depth DESC"
    links = database.execute(query, visible | {"id": id}).fetchall()
    # the oldest response comes first; what it continued itself is not kept any more
    missing = links[0][1] if links else id
    size = sum(size for _, _, size in links)
    if missing is not None or size > max_bytes:
        return Chain(bytes=size, missing=missing or "")
    database.executemany(
        "UPDATE responses SET used = ? WHERE id = ?", ((now, link) for link, _, _ in links)
    )
    query = (
        f"{_CHAIN} SELECT items.body FROM chain JOIN items ON response = chain.id "
        "ORDER BY depth DESC, position"
    )
    rows = database.execute(query, visible | {"id": id})
    return Chain([json.loads(text) for (text,) in rows], size)


def _find_items(database: Rows, visible: _Values, ids: Iterable[str]) -> dict[str, JsonObject]:
    """The items of these ids in responses that can be seen."""
    query = (
        "SELECT items.body FROM items JOIN responses ON responses.id = response "
        f"WHERE items.id = :id AND {_VISIBLE} ORDER BY used DESC LIMIT 1"
    )
    items: dict[str, JsonObject] = {}
    for item_id in ids:
        row = database.execute(query, visible | {"id": item_id}).fetchone()
        if row is not None:
            items[item_id] = json.loads(row[0])
    return items


def _delete(database: Rows, visible: _Values, id: str) -> bool:
    """Delete a response and its items; False if it can't be seen."""
    query = f"SELECT 1 FROM responses WHERE id = :id AND {_VISIBLE}"
    if database.execute(query, visible | {"id": id}).fetchone() is None:
        return False
    _delete_rows(database, id)
    return True


def _prune(database: Rows, oldest: int, max_bytes: int) -> None:
    """Delete what was not used since `oldest`, and what was used least beyond `max_bytes`."""
    expired = database.execute("SELECT id FROM responses WHERE used < ?", (oldest,)).fetchall()
    expired += database.execute(_OVER_LIMIT, (max_bytes,)).fetchall()
    for (response,) in expired:
        _delete_rows(database, response)


def _delete_rows(database: Rows, id: str) -> None:
    """Delete a response and its items, whosever they are."""
    database.execute("DELETE FROM responses WHERE id = ?", (id,))
    database.execute("DELETE FROM items WHERE response = ?", (id,))
