"""Memories on disk, what goes into them, and what comes out."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shepherd.memory.memory import Memory
from shepherd.memory.store import ArchivedMessage, Place
from shepherd.messages import Role

HERE, THERE = Place("/work/here/sub", "/work/here"), Place("/work/there", "/work/there")
NOW = datetime.now(UTC).replace(microsecond=0)


def fail(text: str) -> None:
    raise AssertionError(text)


def said(
    text: str, place: Place = HERE, age: timedelta = timedelta(), session: str = "s"
) -> ArchivedMessage:
    return ArchivedMessage(session, place, NOW - age, Role.USER, "", text)


@asynccontextmanager
async def opened(
    path: Path,
    warn: Callable[[str], None] = fail,
    max_bytes: int = 1_000_000,
    *,
    full_text: bool = True,
) -> AsyncGenerator[Memory]:
    memory = Memory(path, warn, max_bytes=max_bytes, full_text=full_text)
    try:
        yield memory
    finally:
        await memory.aclose()


async def texts(memory: Memory, query: str, limit: int = 50) -> list[str]:
    return [match.text for match in await memory.search(query, HERE.project, limit)]


def content(path: Path) -> bytes:
    """The file's content, b"" if there is no file."""
    return path.read_bytes() if path.exists() else b""
