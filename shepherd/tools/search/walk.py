"""Walking a directory tree without leaving it."""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.files.opening import enter_directory

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
MAX_DEPTH = 100
"""What lies deeper is passed over: each level holds a descriptor."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in the tree: path relative to its root, and what it is."""

    path: str
    is_dir: bool
    is_file: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree below the resolved directory `root`, without what is named in `skip`.

    Directories that the rules deny for reading are left out; whether a file is denied the caller
    asks when it matters.
    """

    root: Path
    context: ToolContext
    skip: frozenset[str] = SKIPPED

    def walk(self, descriptor: int, stopped: Callable[[], bool]) -> Generator[Entry]:
        """Everything in the tree, sorted by the parts of the path, given the root's descriptor.

        A directory comes before what it holds. Links are told but not followed, not even one that
        was put in the place of a directory meanwhile.
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
            yield Entry(path, is_dir, is_file)
            if is_dir and len(parts) < MAX_DEPTH:
                yield from self._inside(directory, (*parts, name), stopped)

    def _inside(
        self, parent: int, parts: tuple[str, ...], stopped: Callable[[], bool]
    ) -> Generator[Entry]:
        try:
            directory = enter_directory(parent, parts[-1])
        except OSError:
            return  # deleted, closed to us or a link by now: like an empty one
        try:
            yield from self._below(directory, parts, stopped)
        finally:
            os.close(directory)


def denied(context: ToolContext, path: Path) -> bool:
    """Whether the rules deny reading the resolved `path`."""
    return context.denies(Access(AccessKind.READ, str(path)))


def _sorted(directory: int) -> list[tuple[str, bool, bool]]:
    """Each name, and whether it is a directory or a regular file."""
    try:
        with os.scandir(directory) as entries:
            result = [
                (e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False))
                for e in entries
            ]
    except OSError:
        return []  # deleted meanwhile: like an empty one
    return sorted(result, key=lambda entry: os.fsencode(entry[0]))
