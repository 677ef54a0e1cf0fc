"""Messages that left their conversations: putting them in, and letting the oldest go."""

from collections.abc import Sequence
from datetime import UTC, datetime

from shepherd.memory.database import Handle
from shepherd.memory.records import Counts, KeptMessage

TRIM_SHARE = 0.9
"""What is over the limit is trimmed to this share of it, so that not every write has to."""


def add_messages(handle: Handle, messages: Sequence[KeptMessage], max_bytes: int) -> None:
    """Append messages in their order; beyond `max_bytes` of text the oldest go."""
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
    """Forget all messages and all facts."""
    if handle.full_text:
        handle.connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    handle.connection.execute("DELETE FROM messages")
    handle.connection.execute("DELETE FROM facts")


def count_all(handle: Handle) -> Counts:
    """How much there is."""
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
