"""Recognising a file that is denied under another of its names."""

import os
from collections.abc import Generator
from pathlib import Path
from typing import TypeAlias

from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.permissions.defaults import protected_rules

Identity: TypeAlias = tuple[int, int]
"""Device and inode: what all names of a file share."""

MAX_ENTRIES = 20_000
"""So many names are looked at in one directory tree; hard links to others are not recognised."""


def identity(status: os.stat_result) -> Identity:
    """What all names of the file share."""
    return status.st_dev, status.st_ino


def denied_files(context: ToolContext, kind: AccessKind) -> dict[Identity, Path]:
    """The files nearby that the rules deny, by identity.

    Nearby is the working directory with what is below it, and in the home directory the usual
    places of secrets.
    """
    found: dict[Identity, Path] = {}
    places = [context.cwd, *_secret_places(Path.home())]
    for path in (file for place in places for file in _files(place, deep=place != Path.home())):
        if context.denies(Access(kind, str(path))):
            try:
                found[identity(path.lstat())] = path
            except OSError:
                continue  # deleted meanwhile: no name of it is left here
    return found


def _secret_places(home: Path) -> set[Path]:
    """The home directory and the directories in it that the protected names lie in."""
    names = {rule.pattern.removeprefix("/**/") for rule in protected_rules()}
    fixed = {name for name in names if not name.startswith("/")}
    return {(home / name).parent for name in fixed}


def _files(root: Path, *, deep: bool) -> Generator[Path]:
    """The files in a directory and, if `deep`, below it; links are not followed."""
    pending, count = [root], 0
    while pending and count < MAX_ENTRIES:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)
                    elif deep and entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except OSError:
            continue  # closed to us: nothing in it can be recognised
