"""The files below a directory that `@` completes, and their order."""

import os
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from shepherd.own_programs import own_program

MAX_FILES = 50_000
MAX_SCANNED = 5000
"""Directory entries that are read of one directory, or where there is no git repository."""
MAX_DEPTH = 4
MAX_LIST_BYTES = 8_388_608
GIT_SECONDS = 2.0
CACHE_SECONDS = 5.0
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})
_LIST = ("-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others",
         "--exclude-standard")  # fmt: skip


class FileList:
    """Paths below `cwd`, read again after a few seconds; directories end with a slash."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._paths: list[str] = []
        self._read_at = float("-inf")

    def ranked(self, typed: str) -> list[str]:
        """The paths that contain the letters of `typed` in their order, the best first.

        Only names are compared, unless `typed` has a slash.
        """
        if time.monotonic() - self._read_at > CACHE_SECONDS:
            self._paths, self._read_at = self._read(), time.monotonic()
        query = typed.lower()
        scored = ((score(path, query), len(path), path) for path in self._paths)
        return [path for grade, _, path in sorted(scored) if grade < NO_MATCH]

    def _read(self) -> list[str]:
        files = _git_files(self._cwd)
        if files is None:
            return list(_walk(self._cwd))
        parents = {f"{parent}/" for path in files for parent in _parents(path)}
        return [*files, *parents]


NO_MATCH = 9
MIN_LETTERS = 3
"""Fewer letters must stand together in a name."""


def score(path: str, query: str) -> int:
    """How well a path fits, 0 for the best; NO_MATCH if it does not."""
    whole = path.lower().rstrip("/")
    text = whole if "/" in query else whole.rpartition("/")[2]
    if text.startswith(query):
        return 0
    if query in text:
        return 1
    characters = iter(text)
    is_long = len(query) >= MIN_LETTERS
    return 2 if is_long and all(letter in characters for letter in query) else NO_MATCH


def _parents(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _git_files(cwd: Path) -> list[str] | None:
    """The files that git knows or would add; None without git or a repository."""
    git = own_program("git")
    if git is None:
        return None
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        result = subprocess.run(
            [git, *_LIST], cwd=cwd, env=env, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode or len(result.stdout) > MAX_LIST_BYTES:
        return None
    names = (os.fsdecode(name) for name in result.stdout.split(b"\0") if name)
    return list(dict.fromkeys(islice(names, MAX_FILES)))


def _walk(base: Path) -> Iterator[str]:
    budget = MAX_SCANNED
    level = [""]
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for directory in level:
            for entry in scan(base / directory):
                budget -= 1
                if budget < 0:
                    return
                if entry.name[0] == "." or entry.name in SKIPPED:
                    continue
                path = f"{directory}{entry.name}"
                is_dir = entry.is_dir(follow_symlinks=False)
                yield f"{path}/" if is_dir else path
                if is_dir:
                    below.append(path + "/")
        level = below


def scan(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory, sorted by name; [] if it can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_SCANNED), key=lambda e: e.name)
    except OSError:
        return []
