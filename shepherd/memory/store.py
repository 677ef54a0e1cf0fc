"""The memory's file: its tables, with a full-text index where SQLite has one, and their rows."""

import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from shepherd.errors import MemoryStoreError
from shepherd.messages import Message, Role, ToolCall

RESULT_CHARACTERS = 16_384
"""Maximum length of a tool's result; the rest is cut off."""

WHOLE_CHARACTERS = 600
"""A message up to this length is returned in full; of a longer one, the matching part."""

EVERYWHERE = ""
"""The project of facts that apply to all projects."""

MAX_KEY, MAX_VALUE = 200, 8192
"""Maximum lengths of a fact's key and value in characters."""

OWN_TOOLS = frozenset({"search_memory", "set_fact", "get_fact", "clear_fact"})
"""Results of these tools are not stored again."""


class Place(Struct, frozen=True):
    """The working directory of a conversation, and its project."""

    directory: str
    project: str

    @classmethod
    def of(cls, cwd: Path) -> "Place":
        """The place of `cwd`; its project is the git repository around it, else `cwd` itself."""
        root = next((d for d in (cwd, *cwd.parents) if (d / ".git").exists()), cwd)
        return cls(str(cwd), str(root))


class ArchivedMessage(Struct, frozen=True):
    """An evicted message; `tool` is the name of a result's tool, else ""."""

    session: str
    place: Place
    said: datetime
    role: Role
    tool: str
    text: str


class MemoryMatch(Struct, frozen=True):
    """A match of a search; `text` is a short message, or a part of a long one.

    `directory` is the working directory of the message, "" if it belongs to this project.
    """

    said: datetime
    role: Role
    tool: str
    directory: str
    text: str


class Fact(Struct, frozen=True):
    """A fact; `everywhere` if it applies to all projects."""

    key: str
    value: str
    everywhere: bool


class Counts(Struct, frozen=True):
    """Numbers of stored items; `text_bytes` is the size of all messages, `oldest` is a time."""

    messages: int
    sessions: int
    text_bytes: int
    facts: int
    oldest: datetime | None


def archived_text(message: Message) -> str:
    """The searchable text of a message: its content and its calls; "" if it is not stored."""
    if message.is_hint or (message.role is Role.TOOL and message.name in OWN_TOOLS):
        return ""  # else a search would find earlier searches
    calls = [_call_text(call) for call in message.tool_calls if call.name not in OWN_TOOLS]
    text = "\n".join(filter(None, (storable(message.plain_text).strip(), *calls)))
    return cut(text, RESULT_CHARACTERS) if message.role is Role.TOOL else text


def storable(text: str) -> str:
    """`text` as SQLite can store it: without NUL and without lone surrogates."""
    text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def cut(text: str, characters: int) -> str:
    """The beginning of `text`, with a note if something was cut off."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}\n[{len(text) - characters} more characters were not kept]"


def _call_text(call: ToolCall) -> str:
    """The call as searchable text, such as `read_file(path=notes.txt)`."""
    arguments = ", ".join(f"{name}={_plain(value)}" for name, value in call.arguments.items())
    return storable(f"{call.name}({arguments})")


def _plain(value: Any) -> str:
    """A JSON value as searchable text, without escapes."""
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in cast(list[Any], value))}]"
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        inner = ", ".join(f"{key}: {_plain(item)}" for key, item in items)
        return f"{{{inner}}}"
    return str(value)


MIGRATIONS = (
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        bytes INTEGER NOT NULL,
        said INTEGER NOT NULL,
        session TEXT NOT NULL,
        directory TEXT NOT NULL,
        project TEXT NOT NULL,
        role TEXT NOT NULL,
        tool TEXT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX messages_bytes ON messages (bytes);
    CREATE TABLE facts (
        project TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        changed INTEGER NOT NULL,
        PRIMARY KEY (project, key)
    ) WITHOUT ROWID;
    """,
)
"""The statements that lead from each version to the next; times are seconds since 1970."""

_INDEX = """
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    body, content = 'messages', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
)
"""


def has_full_text(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has FTS5."""
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.probe USING fts5 (x)")
        connection.execute("DROP TABLE temp.probe")
    except sqlite3.OperationalError:
        return False
    return True


def prepare_index(connection: sqlite3.Connection) -> None:
    """Create the full-text index, and fill it if a SQLite without FTS5 has written meanwhile."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'messages_fts'"
    if connection.execute(tables).fetchone()[0] == 0:
        connection.execute(_INDEX)
    in_index = "SELECT count(*) FROM messages_fts_docsize"  # FTS5 has a row for each text there
    in_table = "SELECT count(*) FROM messages"
    if connection.execute(in_index).fetchone() != connection.execute(in_table).fetchone():
        connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')")


class Handle(Struct):
    """The connection within a transaction, and whether full-text search is available."""

    connection: sqlite3.Connection
    full_text: bool


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
    """The size of all messages' texts."""
    total = "SELECT coalesce(sum(bytes), 0) FROM messages"
    return int(handle.connection.execute(total).fetchone()[0])


def _trim(handle: Handle, keep_bytes: int) -> None:
    """Remove the oldest messages, so that the newest `keep_bytes` of text stay."""
    # Of each message, the bytes from the newest one back to it.
    newest_to_remove = (
        "SELECT max(id) FROM"
        " (SELECT id, sum(bytes) OVER (ORDER BY id DESC) AS bytes_back_to FROM messages)"
        " WHERE bytes_back_to > ?"
    )
    last_id = handle.connection.execute(newest_to_remove, (keep_bytes,)).fetchone()[0]
    if handle.full_text:  # the index gets the texts that it forgets, because it keeps none
        handle.connection.execute(
            "INSERT INTO messages_fts (messages_fts, rowid, body)"
            " SELECT 'delete', id, body FROM messages WHERE id <= ?",
            (last_id,),
        )
    handle.connection.execute("DELETE FROM messages WHERE id <= ?", (last_id,))


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
    # Of one key, that of the project comes last, because EVERYWHERE is "".
    facts = {key: Fact(key, value, bool(everywhere)) for key, value, everywhere in rows}
    return list(facts.values())


def clear_fact(handle: Handle, project: str, key: str) -> bool:
    """Remove the fact that applies in `project` under `key`; False if there is none.

    That is the project's own; one for all projects is removed only if the project has none.
    """
    delete = "DELETE FROM facts WHERE project = ? AND key = ?"
    return any(
        handle.connection.execute(delete, (where, key)).rowcount for where in (project, EVERYWHERE)
    )
