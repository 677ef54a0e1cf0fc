"""The memory for the rest of the program: asynchronous, with the work in one thread."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from shepherd.errors import MemoryStoreError
from shepherd.memory.store import (
    WHOLE_CHARACTERS,
    ArchivedMessage,
    Counts,
    Database,
    Fact,
    Handle,
    MemoryMatch,
    Place,
    Work,
    add_messages,
    archived_text,
    clear_all,
    clear_fact,
    count_all,
    facts_of,
    set_fact,
    storable,
)
from shepherd.messages import Message, Role

T = TypeVar("T")

MIB = 1_048_576
DEFAULT_MIB = 64
CLOSING_SECONDS = 10.0
"""The time that closing waits for pending writes."""


class Memory:
    """The store at `path`, shared by all Shepherds of this user; opened at the first use.

    One thread does the work in the order of the calls, so a search sees all earlier messages.
    `warn` is called on the event loop's thread with warnings for the user. Every
    coroutine raises MemoryStoreError if the file can't be used.
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
        self._warnings: list[str] = []
        self._database = Database(path, self._warnings.append, full_text=full_text)
        self._used = False
        self._writing: set[asyncio.Future[None]] = set()
        self._failed = False
        self._warned = False

    @property
    def works(self) -> bool:
        """Whether the last finished write succeeded."""
        return not self._failed

    def keep(self, messages: Sequence[ArchivedMessage]) -> None:
        """Store messages in their order without waiting; the first failure causes a warning."""
        work = partial(add_messages, messages=messages, max_bytes=self._max_bytes)
        writing = self._submit(work, write=True)
        self._writing.add(writing)
        writing.add_done_callback(self._kept)

    async def search(self, query: str, project: str, limit: int) -> list[MemoryMatch]:
        """The messages that match `query`, the best first, those of `project` before others."""
        work = partial(search_messages, query=query, project=project, limit=limit)
        return await self._do(work, write=False)

    async def facts(self, project: str) -> list[Fact]:
        """The facts that apply in `project`, by key."""
        return await self._do(partial(facts_of, project=project), write=False)

    async def set_fact(self, project: str, key: str, value: str) -> None:
        """Set or replace a fact; `project` "" means all projects."""
        await self._do(partial(set_fact, project=project, key=key, value=value), write=True)

    async def clear_fact(self, project: str, key: str) -> bool:
        """Remove the fact that applies in `project`; False if there is none."""
        return await self._do(partial(clear_fact, project=project, key=key), write=True)

    async def counts(self) -> Counts:
        """The numbers of stored items."""
        return await self._do(count_all, write=False)

    async def clear(self) -> None:
        """Remove everything, of all projects."""
        await self._do(clear_all, write=True)

    async def aclose(self) -> None:
        """Finish pending writes, for CLOSING_SECONDS at most, and close the file."""
        if self._used:
            closing = asyncio.wrap_future(self._thread.submit(self._database.close))
            await asyncio.wait([closing, *self._writing], timeout=CLOSING_SECONDS)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _do(self, work: Work[T], *, write: bool) -> T:
        try:
            return await self._submit(work, write=write)
        finally:
            self._pass_warnings()

    def _submit(self, work: Work[T], *, write: bool) -> "asyncio.Future[T]":
        self._used = True
        return asyncio.wrap_future(self._thread.submit(self._database.run, work, write=write))

    def _kept(self, writing: asyncio.Future[None]) -> None:
        self._writing.discard(writing)
        self._pass_warnings()
        if writing.cancelled():
            return
        error = writing.exception()
        self._failed = error is not None
        if error is not None and not isinstance(error, MemoryStoreError):
            raise error
        if error is not None and not self._warned:
            self._warned = True
            self._warn(f"Messages that leave the conversation are not kept: {error}")

    def _pass_warnings(self) -> None:
        while self._warnings:
            self._warn(self._warnings.pop(0))


class ConversationArchive:
    """The `SessionArchive` of the conversation `session` at `place`."""

    def __init__(self, memory: Memory, session: str, place: Place) -> None:
        self._memory = memory
        self._session = session
        self._place = place

    @property
    def keeps(self) -> bool:
        """Whether the stored messages can be searched."""
        return self._memory.works

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Store messages, except those without text and results of the memory's own tools."""
        now = datetime.now(UTC)
        timed = zip(messages, times, strict=True)
        kept = [self._kept(message, said or now) for message, said in timed]
        if any(entry.text for entry in kept):
            self._memory.keep([entry for entry in kept if entry.text])

    def _kept(self, message: Message, said: datetime) -> ArchivedMessage:
        tool = message.name if message.role is Role.TOOL else ""
        text = archived_text(message)
        return ArchivedMessage(self._session, self._place, said, message.role, tool, text)


MAX_TERMS = 24
CANDIDATES = 50
"""The number of best matches that are also ranked by age."""

HALF_LIFE_DAYS = 30.0
_WORD = re.compile(r"\w+")
_COLUMNS = "m.id, m.said, m.role, m.tool, m.directory, substr(m.body, 1, ?), length(m.body)"


def search_terms(query: str) -> list[str]:
    """The distinct words of `query` in their original spelling."""
    words = (w for w in _WORD.findall(storable(query)) if any(c.isalnum() for c in w))
    return list({word.casefold(): word for word in words}.values())[:MAX_TERMS]


def search_messages(handle: Handle, query: str, project: str, limit: int) -> list[MemoryMatch]:
    """The best `limit` messages, those of `project` first; [] if `query` has no words."""
    terms = search_terms(query)
    if not terms:
        return []
    hits: list[_Hit] = []
    if handle.full_text:
        quoted = [f'"{term}"' for term in terms]
        hits = _indexed(handle, " AND ".join(quoted), project)
        hits = hits or _indexed(handle, " OR ".join(quoted), project)
    return _best(hits or _scanned(handle, terms, project), limit)


def search_facts(facts: Sequence[Fact], query: str, limit: int) -> list[Fact]:
    """The facts that contain the most query words in key or value, the best first."""
    terms = [term.casefold() for term in search_terms(query)]
    scored = [(_matches(f"{fact.key} {fact.value}".casefold(), terms), fact) for fact in facts]
    best = max((score for score, _ in scored), default=0)
    return [fact for score, fact in scored if score == best and score > 0][:limit]


@dataclass(frozen=True, slots=True)
class _Hit:
    match: MemoryMatch
    here: bool
    score: float


def _indexed(handle: Handle, match: str, project: str) -> list[_Hit]:
    """The best matches by the full-text index, in this project and in others."""
    hits: list[_Hit] = []
    for here in (True, False):
        rows = handle.connection.execute(
            f"SELECT {_COLUMNS}, -bm25(messages_fts),"
            " snippet(messages_fts, 0, '', '', ' … ', 64)"
            " FROM messages_fts JOIN messages AS m ON m.id = messages_fts.rowid"
            f" WHERE messages_fts MATCH ? AND m.project {'=' if here else '<>'} ?"
            " ORDER BY bm25(messages_fts) LIMIT ?",
            (WHOLE_CHARACTERS, match, project, CANDIDATES),
        )
        hits += [_hit(row, here=here) for row in rows]
    return hits


def _scanned(handle: Handle, terms: Sequence[str], project: str) -> list[_Hit]:
    """The newest messages with the most terms, by exact substrings."""
    count = " + ".join(["(m.body LIKE ? ESCAPE '\\')"] * len(terms))
    patterns = [f"%{_escaped(term)}%" for term in terms]
    hits: list[_Hit] = []
    for here in (True, False):
        rows = handle.connection.execute(
            f"SELECT {_COLUMNS}, ({count}) AS matched,"
            " substr(m.body, max(1, instr(lower(m.body), ?) - 200), ?)"
            f" FROM messages AS m WHERE matched > 0 AND m.project {'=' if here else '<>'} ?"
            " ORDER BY matched DESC, m.id DESC LIMIT ?",
            (WHOLE_CHARACTERS, *patterns, terms[0].lower(), WHOLE_CHARACTERS, project, CANDIDATES),
        )
        hits += [_hit(row, here=here) for row in rows]
    return hits


def _hit(row: sqlite3.Row | tuple[object, ...], *, here: bool) -> _Hit:
    _, said, role, tool, directory, start, length, words, part = row
    age_days = max(0.0, time.time() - float(str(said))) / 86_400
    recency = 0.5 + 0.5 * 0.5 ** (age_days / HALF_LIFE_DAYS)
    result = MemoryMatch(
        said=datetime.fromtimestamp(int(str(said)), UTC),
        role=Role(str(role)),
        tool=str(tool),
        directory="" if here else str(directory),
        text=str(start if int(str(length)) <= WHOLE_CHARACTERS else part),
    )
    return _Hit(result, here, float(str(words)) * recency)


def _best(hits: Sequence[_Hit], limit: int) -> list[MemoryMatch]:
    """The best matches, those of this project first, without duplicates."""
    ranked = sorted(hits, key=lambda hit: (not hit.here, -hit.score))
    different: dict[tuple[Role, str], MemoryMatch] = {}
    for hit in ranked:
        different.setdefault((hit.match.role, hit.match.text), hit.match)
    return list(different.values())[:limit]


def _matches(text: str, terms: Sequence[str]) -> int:
    return sum(term in text for term in terms)


def _escaped(term: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", term)
