"""Walks a directory tree without leaving it."""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.files.opening import enter_directory
from shepherd.tools.search.ignore import Ignored

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
MAX_DEPTH = 100
"""Deeper directories are skipped, because each level holds a descriptor."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the tree: its path relative to the root, and its kind."""

    path: str
    is_dir: bool
    is_file: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree below the resolved directory `root`, without what is in `skip` or ignored.

    Directories that the rules deny for reading are left out. Callers check files themselves.
    """

    root: Path
    context: ToolContext
    skip: frozenset[str] = SKIPPED
    ignored: Ignored | None = None

    def walk(self, descriptor: int, stopped: Callable[[], bool]) -> Generator[Entry]:
        """All entries, sorted by the parts of their paths; `descriptor` is the open root.

        A directory comes before its content. Links are listed but not followed, not even a link
        that has replaced a directory meanwhile.
        """
        yield from self._below(descriptor, (), stopped)

    def _below(
        self, directory: int, parts: tuple[str, ...], stopped: Callable[[], bool]
    ) -> Generator[Entry]:
        for name, is_dir, is_file in _sorted(directory):
            if stopped():
                return
            path = "/".join((*parts, name))
            if name in self.skip or (is_dir and denied(self.context, self.root / path)):
                continue
            if self.ignored is not None and self.ignored.has(path, is_dir=is_dir):
                continue
            yield Entry(path, is_dir, is_file)
            if is_dir and len(parts) < MAX_DEPTH:
                yield from self._inside(directory, (*parts, name), stopped)

    def _inside(
        self, parent: int, parts: tuple[str, ...], stopped: Callable[[], bool]
    ) -> Generator[Entry]:
        try:
            directory = enter_directory(parent, parts[-1])
        except OSError:
            return  # deleted, unreadable or a link by now: treat it as empty
        try:
            yield from self._below(directory, parts, stopped)
        finally:
            os.close(directory)


def denied(context: ToolContext, path: Path) -> bool:
    """Whether the rules deny reading the resolved `path`."""
    return context.denies(Access(AccessKind.READ, str(path)))


def _sorted(directory: int) -> list[tuple[str, bool, bool]]:
    """Each name with its kind: directory or regular file."""
    try:
        with os.scandir(directory) as entries:
            result = [
                (e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False))
                for e in entries
            ]
    except OSError:
        return []  # deleted meanwhile: treat it as empty
    return sorted(result, key=lambda entry: os.fsencode(entry[0]))
