"""The memory for the rest of the program: asynchronous, with the work in one thread."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from shepherd.database import DatabaseFile
from shepherd.errors import MemoryStoreError
from shepherd.memory import store
from shepherd.messages import Message, Role

T = TypeVar("T")
Work: TypeAlias = Callable[[store.Handle], T]

NO_FULL_TEXT = (
    "This Python's SQLite has no full-text search (FTS5): the memory is searched for words as "
    "they are written, and more slowly."
)
MIB = 1_048_576
DEFAULT_MIB = 64
CLOSING_SECONDS = 10.0
"""The time that closing waits for pending writes."""


class Memory:
    """The store at `path`, shared by all Shepherds of this user; opened at the first use.

    One thread does the work in the order of the calls, so a search sees all earlier messages.
    `warn` is called on the event loop's thread with warnings for the user. Every coroutine raises
    MemoryStoreError if the file can't be used. With `full_text` False, FTS5 is not used.
    """

    def __init__(
        self,
        path: Path,
        warn: Callable[[str], None],
        *,
        max_bytes: int = DEFAULT_MIB * MIB,
        full_text: bool = True,
    ) -> None:
        self.path = path
        self._warn = warn
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, "memory")
        self._new_warnings: list[str] = []
        """Those of the thread, until the event loop passes them on."""
        self._full_text = full_text
        self._file = DatabaseFile(
            path, store.MIGRATIONS, self._note_damage, MemoryStoreError, on_open=self._prepare
        )
        self._running_writes: set[asyncio.Future[None]] = set()
        self._last_write_failed = False
        self._warned_of_failure = self._warned_of_full_text = False  # each is told once

    @property
    def works(self) -> bool:
        """Whether the last finished write succeeded."""
        return not self._last_write_failed

    def keep(self, messages: Sequence[store.ArchivedMessage]) -> None:
        """Store messages in their order without waiting; the first failure causes a warning."""
        work = partial(store.add_messages, messages=messages, max_bytes=self._max_bytes)
        running_write = self._submit(work, write=True)
        self._running_writes.add(running_write)
        running_write.add_done_callback(self._note_written)

    async def search(self, query: str, project: str, limit: int) -> list[store.MemoryMatch]:
        """The messages that match `query`, the best first, those of `project` before others."""
        work = partial(search_messages, query=query, project=project, limit=limit)
        return await self._do(work, write=False)

    async def facts(self, project: str) -> list[store.Fact]:
        """The facts that apply in `project`, by key."""
        return await self._do(partial(store.facts_of, project=project), write=False)

    async def set_fact(self, project: str, key: str, value: str) -> None:
        """Set or replace a fact; `project` "" means all projects."""
        await self._do(partial(store.set_fact, project=project, key=key, value=value), write=True)

    async def clear_fact(self, project: str, key: str) -> bool:
        """Remove the fact that applies in `project`; False if there is none."""
        return await self._do(partial(store.clear_fact, project=project, key=key), write=True)

    async def counts(self) -> store.Counts:
        """The numbers of stored items."""
        return await self._do(store.count_all, write=False)

    async def clear(self) -> None:
        """Remove everything, of all projects."""
        await self._do(store.clear_all, write=True)

    async def aclose(self) -> None:
        """Finish pending writes, for CLOSING_SECONDS at most, and close the file."""
        closing = asyncio.wrap_future(self._thread.submit(self._file.close))
        await asyncio.wait([closing, *self._running_writes], timeout=CLOSING_SECONDS)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _do(self, work: Work[T], *, write: bool) -> T:
        """The result of work in a transaction, which may change the file if it is a `write`."""
        try:
            return await self._submit(work, write=write)
        finally:
            self._pass_warnings()

    def _submit(self, work: Work[T], *, write: bool) -> "asyncio.Future[T]":
        """Queue work for the thread, in a transaction of its own."""

        def in_transaction(connection: sqlite3.Connection) -> T:
            return work(store.Handle(connection, self._full_text))

        return asyncio.wrap_future(self._thread.submit(self._file.run, in_transaction, write=write))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make or fill the index of a new connection, in the thread."""
        self._full_text = self._full_text and store.has_full_text(connection)
        if self._full_text:
            store.prepare_index(connection)
        elif not self._warned_of_full_text:
            self._warned_of_full_text = True
            self._new_warnings.append(NO_FULL_TEXT)

    def _note_damage(self, error: Exception, old_file: Path) -> None:
        """Warn that the file could not be read, and was moved; in the thread."""
        text = f"The memory was damaged ({error}). It begins again; the old file is {old_file}"
        self._new_warnings.append(text)

    def _note_written(self, finished_write: asyncio.Future[None]) -> None:
        """Note the end of a write; the first failure becomes a warning."""
        self._running_writes.discard(finished_write)
        self._pass_warnings()
        if finished_write.cancelled():
            return
        error = finished_write.exception()
        self._last_write_failed = error is not None
        if error is None:
            return
        if not isinstance(error, MemoryStoreError):  # a mistake in this program
            raise error
        if not self._warned_of_failure:
            self._warned_of_failure = True
            self._warn(f"Messages that leave the conversation are not kept: {error}")

    def _pass_warnings(self) -> None:
        """Warn the user on the event loop's thread."""
        while self._new_warnings:
            self._warn(self._new_warnings.pop(0))


class ConversationArchive(Struct, frozen=True, eq=False):
    """The `SessionArchive` of the conversation `session` at `place`."""

    memory: Memory
    session: str
    place: store.Place

    @property
    def keeps(self) -> bool:
        """Whether the stored messages can be searched."""
        return self.memory.works

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Store messages, except those without text and results of the memory's own tools."""
        now = datetime.now(UTC)  # for messages whose time is not known
        kept: list[store.ArchivedMessage] = []
        for message, said in zip(messages, times, strict=True):
            text = store.archived_text(message)
            if not text:
                continue
            tool = message.name if message.role is Role.TOOL else ""
            moment = said or now
            kept.append(
                store.ArchivedMessage(self.session, self.place, moment, message.role, tool, text)
            )
        if kept:
            self.memory.keep(kept)


MAX_TERMS = 24
CANDIDATES = 50
"""The number of best matches that are also ranked by age."""

HALF_LIFE_DAYS = 30.0
_WORD = re.compile(r"\w+")
_COLUMNS = "m.said, m.role, m.tool, m.directory, substr(m.body, 1, ?), length(m.body)"


def search_terms(query: str) -> list[str]:
    """The distinct words of `query` in their original spelling."""
    all_words = _WORD.findall(store.storable(query))
    words = (word for word in all_words if any(c.isalnum() for c in word))  # not `__`
    return list({word.casefold(): word for word in words}.values())[:MAX_TERMS]


def search_messages(
    handle: store.Handle, query: str, project: str, limit: int
) -> list[store.MemoryMatch]:
    """The best `limit` messages, those of `project` first; [] if `query` has no words."""
    terms = search_terms(query)
    if not terms:
        return []
    hits: list[_Hit] = []
    if handle.full_text:
        quoted = [f'"{term}"' for term in terms]
        hits = _indexed(handle, " AND ".join(quoted), project)
        hits = hits or _indexed(handle, " OR ".join(quoted), project)  # no message has all words
    # The index has whole words only; the scan finds parts of them too.
    return _best(hits or _scanned(handle, terms, project), limit)


def search_facts(facts: Sequence[store.Fact], query: str, limit: int) -> list[store.Fact]:
    """The facts that contain the most query words in key or value, the best first."""
    terms = [term.casefold() for term in search_terms(query)]
    texts = [f"{fact.key} {fact.value}".casefold() for fact in facts]
    scores = [sum(term in text for term in terms) for text in texts]
    best_score = max(scores, default=0)
    if best_score == 0:
        return []
    scored = zip(scores, facts, strict=True)
    return [fact for score, fact in scored if score == best_score][:limit]


class _Hit(Struct, frozen=True):
    """A match; `here` if it is of this project."""

    match: store.MemoryMatch
    here: bool
    score: float


def _indexed(handle: store.Handle, expression: str, project: str) -> list[_Hit]:
    """The best matches of an expression of FTS5 by the index, in this project and in others."""
    hits: list[_Hit] = []
    for here in (True, False):
        rows = handle.connection.execute(
            f"SELECT {_COLUMNS}, -bm25(messages_fts),"
            " snippet(messages_fts, 0, '', '', ' … ', 64)"
            " FROM messages_fts JOIN messages AS m ON m.id = messages_fts.rowid"
            f" WHERE messages_fts MATCH ? AND m.project {'=' if here else '<>'} ?"
            " ORDER BY bm25(messages_fts) LIMIT ?",
            (store.WHOLE_CHARACTERS, expression, project, CANDIDATES),
        )
        hits += [_hit(row, here=here) for row in rows]
    return hits


def _scanned(handle: store.Handle, terms: Sequence[str], project: str) -> list[_Hit]:
    """The newest messages with the most terms, by exact substrings."""
    count = " + ".join(["(m.body LIKE ? ESCAPE '\\')"] * len(terms))
    # LIKE takes `%`, `_` and `\` for themselves behind a backslash.
    escaped = [re.sub(r"([\\%_])", r"\\\1", term) for term in terms]
    patterns = [f"%{term}%" for term in escaped]
    hits: list[_Hit] = []
    for here in (True, False):
        rows = handle.connection.execute(
            f"SELECT {_COLUMNS}, ({count}) AS matched,"
            " substr(m.body, max(1, instr(lower(m.body), ?) - 200), ?)"
            f" FROM messages AS m WHERE matched > 0 AND m.project {'=' if here else '<>'} ?"
            " ORDER BY matched DESC, m.id DESC LIMIT ?",
            (
                store.WHOLE_CHARACTERS,
                *patterns,
                terms[0].lower(),
                store.WHOLE_CHARACTERS,
                project,
                CANDIDATES,
            ),
        )
        hits += [_hit(row, here=here) for row in rows]
    return hits


def _hit(row: tuple[Any, ...], *, here: bool) -> _Hit:
    """The match in a row of `_COLUMNS`, the score and the matching part of the text."""
    said, role, tool, directory, start, length, score, part = row
    age_days = max(0.0, time.time() - said) / 86_400
    recency = 0.5 + 0.5 * 0.5 ** (age_days / HALF_LIFE_DAYS)  # the age costs at most a half
    match = store.MemoryMatch(
        said=datetime.fromtimestamp(said, UTC),
        role=Role(role),
        tool=tool,
        directory="" if here else directory,
        text=start if length <= store.WHOLE_CHARACTERS else part,
    )
    return _Hit(match, here, score * recency)


def _best(hits: Sequence[_Hit], limit: int) -> list[store.MemoryMatch]:
    """The best matches, those of this project first, without duplicates."""
    ranked = sorted(hits, key=lambda hit: (not hit.here, -hit.score))
    by_text: dict[tuple[Role, str], store.MemoryMatch] = {}
    for hit in ranked:
        by_text.setdefault((hit.match.role, hit.match.text), hit.match)
    return list(by_text.values())[:limit]
