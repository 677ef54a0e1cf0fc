"""Walks a directory tree without leaving it."""

import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from msgspec import Struct, field

from shepherd.tools import access, paths
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import closing_descriptor, enter_directory
from shepherd.tools.tool import ToolContext

IGNORE_FILE = ".gitignore"
MAX_BYTES = 262_144
"""Longer files count as empty."""


class _Pattern(Struct, frozen=True):
    """One line of an ignore file; `negated` names what is not ignored after all."""

    regex: re.Pattern[str]
    negated: bool
    only_directories: bool


class Ignored(Struct):
    """What is ignored below `root`; nothing outside of a git repository.

    Names in `keep` are never ignored. `has_hidden_any` tells whether `has` was ever true.
    """

    root: Path
    keep: frozenset[str] = frozenset()
    view: paths.View = paths.REAL_FILES
    has_hidden_any: bool = False
    _repository: Path | None = None
    _patterns: dict[Path, list[_Pattern]] = field(default_factory=dict[Path, list[_Pattern]])
    _directories: dict[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        """Find the repository around the root, and whether git ignores the root itself."""
        directories = (self.root, *self.root.parents)
        with self.view.use() as origin:
            repositories = (p for p in directories if origin.place(p / ".git").exists())
            self._repository = next(repositories, None)
        inside = [p for p in directories if self._repository in p.parents]  # [] without one
        if any(self._is_named(directory, is_dir=True) for directory in inside):
            # a search in an ignored directory is meant
            self._repository = None

    @property
    def is_active(self) -> bool:
        """Whether anything can be ignored."""
        return self._repository is not None

    def has(self, path: str, *, is_dir: bool = False) -> bool:
        """Whether the path relative to the root is ignored, or a directory above it."""
        if self._repository is None:
            return False
        parent, _, _ = path.rpartition("/")
        result = (bool(parent) and self._has_directory(parent)) or self._is_named(
            self.root / path, is_dir=is_dir
        )
        self.has_hidden_any = self.has_hidden_any or result
        return result

    def _has_directory(self, path: str) -> bool:
        """`has` for a directory, asked once: a tree has many files in each."""
        if path not in self._directories:
            self._directories[path] = self.has(path, is_dir=True)
        return self._directories[path]

    def _is_named(self, path: Path, *, is_dir: bool) -> bool:
        """Whether a pattern ignores the path: the last one that matches, in the nearest file."""
        if path.name in self.keep:
            return False
        for directory in path.parents:
            relative = str(path.relative_to(directory))
            for pattern in reversed(self._patterns_in(directory)):  # the last one wins
                if (is_dir or not pattern.only_directories) and pattern.regex.fullmatch(relative):
                    return not pattern.negated
            if directory == self._repository:
                break
        return False

    def _patterns_in(self, directory: Path) -> list[_Pattern]:
        if directory not in self._patterns:
            with self.view.use() as origin:
                path = origin.place(directory / IGNORE_FILE)
                self._patterns[directory] = list(_read_patterns(path))
        return self._patterns[directory]


def _read_patterns(path: Path) -> Iterator[_Pattern]:
    """The patterns of an ignore file; none if it is missing, no regular file, or too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return
        for line in file:
            yield from _parse_pattern(line.rstrip("\r\n"))


def _parse_pattern(line: str) -> Iterator[_Pattern]:
    r"""The pattern of a line, as git reads it; none for a comment, `\#` begins no comment."""
    text = re.sub(r"(?<!\\) +$", "", line)  # spaces at the end count only behind a backslash
    negated, text = text.startswith("!"), text.removeprefix("!")
    if not text or line.startswith("#"):
        return
    anchored = text.rstrip("/")
    if text.startswith(("\\#", "\\!")):
        anchored = anchored.removeprefix("\\")
    if "/" not in anchored:
        anchored = f"**/{anchored}"  # without a slash it names entries at any depth
    elif anchored.endswith("/**"):
        anchored += "/*"  # for git it matches what is in the directory, but not the directory
    regex = re.compile(paths.glob_regex(anchored.lstrip("/")), re.DOTALL)
    if anchored != "**/":  # a line of slashes names nothing
        yield _Pattern(regex, negated, only_directories=text.endswith("/"))


SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
MAX_DEPTH = 100
"""Deeper directories are skipped, because each level holds a descriptor."""


class Entry(Struct, frozen=True):
    """An entry of the tree: its path relative to the root, and its kind."""

    path: str
    is_dir: bool
    is_file: bool


class Tree(Struct, frozen=True):
    """The tree below the resolved directory `root`, without what is in `skip` or ignored.

    What the rules deny for reading is left out.
    """

    root: Path
    context: ToolContext
    skip: frozenset[str] = SKIPPED
    ignored: Ignored | None = None

    def entries(
        self, matcher: re.Pattern[str] | None, files: FileAccess, stopped: Callable[[], bool]
    ) -> list[Entry]:
        """The entries whose paths match, sorted by the parts of their paths; None for all.

        A directory comes before its content. Links are listed but not followed, not even a link
        that has replaced a directory meanwhile. Raises ToolError or OSError for the root.
        """
        with files.open_directory(self.root) as directory:
            return [
                entry
                for entry in self._below(directory, (), stopped)
                if (matcher is None or matcher.fullmatch(entry.path))
                # `_below` leaves out denied directories; of files, few match
                and (entry.is_dir or not denied(self.context, self.root / entry.path))
            ]

    def _below(
        self, directory: int, parts: tuple[str, ...], stopped: Callable[[], bool]
    ) -> Generator[Entry]:
        """What is in an open directory, whose path below the root has these `parts`."""
        for name, is_dir, is_file in _sorted_names(directory):
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
        """What is in the directory with these `parts`, whose parent is open."""
        try:
            directory = enter_directory(parent, parts[-1])
        except OSError:
            return  # deleted, unreadable or a link by now: treat it as empty
        with closing_descriptor(directory):
            yield from self._below(directory, parts, stopped)


def denied(context: ToolContext, path: Path) -> bool:
    """Whether the rules deny reading the resolved `path`."""
    return context.denies(access.Access(access.AccessKind.READ, str(path)))


def _sorted_names(directory: int) -> list[tuple[str, bool, bool]]:
    """Each name, and whether it is a directory or a regular file; a link is neither."""
    try:
        with os.scandir(directory) as entries:
            result = [
                (e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False))
                for e in entries
            ]
    except OSError:
        return []  # deleted meanwhile: treat it as empty
    return sorted(result, key=lambda entry: os.fsencode(entry[0]))
