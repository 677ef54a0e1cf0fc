"""Walking a directory tree without leaving it."""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, ToolContext

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in the tree: path relative to its root, and what it is."""

    path: str
    is_dir: bool
    is_file: bool


def walk(
    root: Path, context: ToolContext, stopped: Callable[[], bool], skip: frozenset[str] = SKIPPED
) -> Generator[Entry]:
    """Everything below `root`, sorted by the parts of the path, directories before what they hold.

    Links are told but not followed. Directories that the rules deny for reading are left out, and
    so is what is named in `skip`; whether a file is denied the caller asks when it matters.
    """
    for entry in _sorted(root):
        if stopped():
            return
        if entry.name in skip:
            continue
        is_dir = entry.is_dir(follow_symlinks=False)
        if is_dir and denied(context, root / entry.name):
            continue
        yield Entry(entry.name, is_dir, entry.is_file(follow_symlinks=False))
        if is_dir:
            for below in walk(root / entry.name, context, stopped, skip):
                yield Entry(f"{entry.name}/{below.path}", below.is_dir, below.is_file)


def denied(context: ToolContext, path: Path) -> bool:
    """Whether the rules deny reading the resolved `path`."""
    return context.denies(Access(AccessKind.READ, str(path)))


def _sorted(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return []  # gone or closed to us: like an empty one
