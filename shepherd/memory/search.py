"""Searches messages by words.

A search tries all words first, then any of them. If the index has none of the words (a part of a
word, scripts without spaces), it searches the text for them.
"""

import re
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shepherd.memory.store import WHOLE_CHARACTERS, Fact, Handle, MemoryMatch, storable
from shepherd.messages import Role

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
