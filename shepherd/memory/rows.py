"""The rows of the memory: evicted messages and facts."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from shepherd.errors import MemoryStoreError
from shepherd.memory.database import Handle
from shepherd.memory.records import EVERYWHERE, ArchivedMessage, Counts, Fact

TRIM_SHARE = 0.9
"""Above the limit, old messages are removed down to this share, so that not every write trims."""

MAX_FACTS = 1000


def add_messages(handle: Handle, messages: Sequence[ArchivedMessage], max_bytes: int) -> None:
    """Append messages in their order; above `max_bytes` of text the oldest are removed."""
    for message in messages:
        added = handle.connection.execute(
            "INSERT INTO messages (bytes, said, session, directory, project, role, tool, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                len(message.text.encode()),
                int(message.said.timestamp()),
                message.session,
                message.place.directory,
                message.place.project,
                message.role.value,
                message.tool,
                message.text,
            ),
        )
        if handle.full_text:
            handle.connection.execute(
                "INSERT INTO messages_fts (rowid, body) VALUES (?, ?)",
                (added.lastrowid, message.text),
            )
    if _text_bytes(handle) > max_bytes:
        _trim(handle, int(max_bytes * TRIM_SHARE))


def clear_all(handle: Handle) -> None:
    """Remove all messages and all facts."""
    if handle.full_text:
        handle.connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    handle.connection.execute("DELETE FROM messages")
    handle.connection.execute("DELETE FROM facts")


def count_all(handle: Handle) -> Counts:
    """The numbers of stored items."""
    messages, sessions, oldest = handle.connection.execute(
        "SELECT count(*), count(DISTINCT session), min(said) FROM messages"
    ).fetchone()
    facts = handle.connection.execute("SELECT count(*) FROM facts").fetchone()[0]
    since = None if oldest is None else datetime.fromtimestamp(oldest, UTC)
    return Counts(messages, sessions, _text_bytes(handle), facts, since)


def _text_bytes(handle: Handle) -> int:
    total = "SELECT coalesce(sum(bytes), 0) FROM messages"
    return int(handle.connection.execute(total).fetchone()[0])


def _trim(handle: Handle, keep_bytes: int) -> None:
    newest_to_go = (
        "SELECT max(id) FROM"
        " (SELECT id, sum(bytes) OVER (ORDER BY id DESC) AS newer FROM messages)"
        " WHERE newer > ?"
    )
    last = handle.connection.execute(newest_to_go, (keep_bytes,)).fetchone()[0]
    if handle.full_text:
        handle.connection.execute(
            "INSERT INTO messages_fts (messages_fts, rowid, body)"
            " SELECT 'delete', id, body FROM messages WHERE id <= ?",
            (last,),
        )
    handle.connection.execute("DELETE FROM messages WHERE id <= ?", (last,))


def set_fact(handle: Handle, project: str, key: str, value: str) -> None:
    """Set or replace a fact of `project`, EVERYWHERE for all; raises MemoryStoreError if full."""
    handle.connection.execute(
        "INSERT INTO facts (project, key, value, changed) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (project, key) DO UPDATE SET value = excluded.value,"
        " changed = excluded.changed",
        (project, key, value, int(time.time())),
    )
    count = "SELECT count(*) FROM facts WHERE project = ?"
    if handle.connection.execute(count, (project,)).fetchone()[0] > MAX_FACTS:
        raise MemoryStoreError(f"there are {MAX_FACTS} facts already; clear one first")


def facts_of(handle: Handle, project: str) -> list[Fact]:
    """The facts that apply in `project`, by key; its own facts override those for all projects."""
    rows = handle.connection.execute(
        "SELECT key, value, project = ? FROM facts WHERE project IN (?, ?) ORDER BY key, project",
        (EVERYWHERE, EVERYWHERE, project),
    )
    facts = {key: Fact(key, value, bool(everywhere)) for key, value, everywhere in rows}
    return list(facts.values())


def clear_fact(handle: Handle, project: str, key: str) -> bool:
    """Remove the fact that applies in `project` under `key`; False if there is none."""
    delete = "DELETE FROM facts WHERE project = ? AND key = ?"
    return any(
        handle.connection.execute(delete, (where, key)).rowcount for where in (project, EVERYWHERE)
    )
