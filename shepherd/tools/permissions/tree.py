"""Finds denied files below a directory that a command reads as a whole."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from shepherd.own_programs import own_program
from shepherd.tools.base import Claim
from shepherd.tools.shell.environment import safe_environment

_MAX_ENTRIES = 30_000
_MAX_DENIED = 200
_GIT_SECONDS = 10
_IGNORE_FILES = frozenset({".ignore", ".rgignore", ".agignore", ".ackrc"})


def first_denied(root: Path, claim: Claim, denies: Callable[[str], bool]) -> str:
    """A file below `root` that would be read and is denied; "" if there is none.

    Raises OverflowError if there are too many files to check.
    """
    denied_paths: list[str] = []
    for path in _walk(root, claim):
        if denies(path):
            denied_paths.append(path)
            if claim is not Claim.UNIGNORED_TREE:
                return path
        if len(denied_paths) > _MAX_DENIED:
            raise OverflowError("too many denied files")
    remaining = (
        [path for path in denied_paths if path not in _ignored(root, denied_paths)]
        if denied_paths
        else []
    )
    return remaining[0] if remaining else ""


def _walk(root: Path, claim: Claim) -> Iterator[str]:
    visible = claim is Claim.VISIBLE_TREE and not _lists_hidden(root)
    count = 0
    for directory, directories, files in os.walk(root):
        count += len(directories) + len(files)
        if count > _MAX_ENTRIES:
            raise OverflowError("too many files")
        if visible and not _IGNORE_FILES.isdisjoint(files):
            raise OverflowError("ignore files decide what is read")
        if claim is Claim.UNIGNORED_TREE:
            directories[:] = [name for name in directories if name != ".git"]
        if visible:
            directories[:] = [name for name in directories if not name.startswith(".")]
        for name in (*files, *directories):
            if visible and name.startswith("."):
                continue
            yield os.path.realpath(f"{directory}/{name}")


def _lists_hidden(root: Path) -> bool:
    return any(
        (directory / name).exists() for directory in (root, *root.parents) for name in _IGNORE_FILES
    )


def _ignored(root: Path, paths: list[str]) -> set[str]:
    """The paths that git ignores; none if git fails."""
    git = own_program("git")
    if git is None:
        return set()
    try:
        process = subprocess.run(
            [git, "check-ignore", "-z", "--stdin"],
            input="\0".join(paths).encode("utf-8", "surrogateescape"),
            cwd=root,
            env=safe_environment(),
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(process.stdout.decode("utf-8", "surrogateescape").split("\0"))
