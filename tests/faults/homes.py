"""What a home must look like whatever happened to the processes that used it."""

import sqlite3
from pathlib import Path

from shepherd.backends.llamacpp.cache.disk_file import read_entry
from shepherd.transcript import SessionStore

SESSIONS = Path(".local/state/shepherd/sessions")
CACHE = Path(".cache/shepherd")
_KNOWN = ("*.jsonl", "*.state", "*.unfinished", "*.db", "*.db-wal", "*.db-shm", "*lock", "*.txt")
_OF_TESTS = ("filler", "script")
"""Files that may be there; anything else is litter. Unfinished ones are swept by the next."""


def check_home(home: Path) -> None:
    """Every session loads, the memory is whole, each cached state is as it was written."""
    store = SessionStore(home / SESSIONS)
    summaries, problems = store.summaries()
    assert problems == []
    for summary in summaries:
        assert store.read(summary.id).warnings == ()
    for path in databases(home):
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
    for path in states(home):
        read_entry(path, path.read_bytes()[8:40])
    assert litter(home) == []


def databases(home: Path) -> list[Path]:
    """The memories below `home`."""
    return list(home.rglob("*.db"))


def states(home: Path) -> list[Path]:
    """The conversations that are kept for the next start."""
    return list((home / CACHE).rglob("*.state"))


def litter(home: Path) -> list[str]:
    """Files that nothing accounts for."""
    files = (path for path in home.rglob("*") if path.is_file())
    known = (*_KNOWN, *_OF_TESTS)
    return [str(path) for path in files if not any(path.match(name) for name in known)]
