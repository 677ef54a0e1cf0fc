"""The files that a repository's `.gitignore` files name."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.tools.paths import glob_regex

IGNORE_FILE = ".gitignore"
MAX_BYTES = 262_144
"""Longer files count as empty."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    negated: bool
    only_directories: bool


@dataclass(slots=True)
class Ignored:
    """What is ignored below `root`; nothing outside of a git repository.

    Names in `keep` are never ignored. `hid` tells whether anything was.
    """

    root: Path
    keep: frozenset[str] = frozenset()
    hid: bool = False
    _top: Path | None = None
    _patterns: dict[Path, list[_Pattern]] = field(default_factory=dict[Path, list[_Pattern]])
    _directories: dict[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        self._top = next((p for p in (self.root, *self.root.parents) if _is_top(p)), None)
        if self._top is not None and self._is_root_ignored():
            self._top = None  # a search in an ignored directory is meant

    @property
    def is_active(self) -> bool:
        """Whether anything can be ignored."""
        return self._top is not None

    def has(self, path: str, *, is_dir: bool = False) -> bool:
        """Whether the path relative to the root is ignored, or a directory above it."""
        if self._top is None:
            return False
        parent, _, _ = path.rpartition("/")
        result = (bool(parent) and self._has_directory(parent)) or self._named(
            self.root / path, is_dir=is_dir
        )
        self.hid = self.hid or result
        return result

    def _has_directory(self, path: str) -> bool:
        if path not in self._directories:
            self._directories[path] = self.has(path, is_dir=True)
        return self._directories[path]

    def _is_root_ignored(self) -> bool:
        above = [p for p in (self.root, *self.root.parents) if self._top in p.parents]
        return any(self._named(directory, is_dir=True) for directory in above)

    def _named(self, path: Path, *, is_dir: bool) -> bool:
        """Whether the last pattern that matches the path ignores it."""
        if path.name in self.keep:
            return False
        for directory in path.parents:
            relative = str(path.relative_to(directory))
            for pattern in reversed(self._patterns_in(directory)):
                if (is_dir or not pattern.only_directories) and pattern.regex.fullmatch(relative):
                    return not pattern.negated
            if directory == self._top:
                break
        return False

    def _patterns_in(self, directory: Path) -> list[_Pattern]:
        if directory not in self._patterns:
            self._patterns[directory] = list(_read(directory / IGNORE_FILE))
        return self._patterns[directory]


def _is_top(directory: Path) -> bool:
    return (directory / ".git").exists()


def _read(path: Path) -> Iterator[_Pattern]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return
        for line in file:
            yield from _parse(line.rstrip("\r\n"))


def _parse(line: str) -> Iterator[_Pattern]:
    text = re.sub(r"(?<!\\) +$", "", line)
    negated, text = text.startswith("!"), text.removeprefix("!")
    if not text or line.startswith("#"):
        return
    body = text.rstrip("/").removeprefix("\\") if text.startswith(("\\#", "\\!")) else text
    anchored = body.rstrip("/")
    if "/" not in anchored:
        anchored = f"**/{anchored}"
    elif anchored.endswith("/**"):
        anchored += "/*"
    try:
        regex = re.compile(glob_regex(anchored.lstrip("/")), re.DOTALL)
    except re.error:
        return
    if anchored != "**/":
        yield _Pattern(regex, negated, text.endswith("/"))
