"""The tables of stored responses, and the statements on them; times are seconds since 1970."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shepherd.messages import JsonObject
from shepherd.storage.rows import Rows

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
