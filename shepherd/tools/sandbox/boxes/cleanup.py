"""Restores protected paths that mounts can't protect: missing files and links."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shepherd.tools.files.opening import open_parent
from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.view.private import PrivateFiles
from shepherd.tools.sandbox.view.toolchains import HOME_STARTUP, real
from shepherd.tools.text import one_line

_MAX_NAMES = 1000

_MAX_ENTRIES = 2000
_MAX_NAMED = 3
_CACHES = re.compile(
    r"tmp[a-z0-9_]{6,8}|pytest-of-.*|pip-.*|npm-.*|node-.*|v8-.*|go-build.*|go-link-.*|hsperfdata_.*"
    r"|cc[A-Za-z0-9]{6}\..*|rustc.*|cargo-.*|uv-.*|matplotlib-.*|yarn--.*|bunx-.*|tsx-.*|jest_.*"
    r"|\.(?:cache|npm|node-gyp|local|cargo|gradle|m2|config|nv|bun|yarn|mypy_cache|ruff_cache|X.*"
    r"|dotnet|nuget|java|pki|python_history|lesshst|wget-hsts|bash_history|sqlite_history|.*-unix)"
)
"""Caches and temporary files of programs, which are not needed afterwards."""


class Watch:
    """Removes files that a command created at such paths, after it has ended."""

    def __init__(self, profile: Profile) -> None:
        """Record the state before the command."""
        root, home = real(profile.root), real(profile.home)
        paths = [*profile.protected]
        if home.is_relative_to(root):
            paths += [home / name for name in HOME_STARTUP]
        places = [real(path.parent) / path.name for path in paths]
        self._missing = [place for place in places if not os.path.lexists(place)]
        self._links = {place: place.readlink() for place in places if place.is_symlink()}

    def undo(self, report: Report) -> None:
        """Rename created files, restore links, and report both. Raises OSError."""
        for place in (*self._missing, *self._links):
            # a command in the background may put a link in a directory's place
            with suppress(OSError):
                directory = open_parent(place)
                try:
                    _restore(place, directory, self._links.get(place), report)
                finally:
                    os.close(directory)


def _restore(place: Path, directory: int, target: Path | None, report: Report) -> None:
    """Make `place` the link to `target` that it was, or nothing if there was none."""
    kind = _kind(place.name, directory)
    if kind == stat.S_IFLNK and os.readlink(place.name, dir_fd=directory) == str(target):
        return
    if kind is not None:
        _move_aside(place, directory, report)
    if target is not None:
        os.symlink(target, place.name, dir_fd=directory)


def _kind(name: str, directory: int) -> int | None:
    """The type of a file; None if there is none."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _move_aside(place: Path, directory: int, report: Report) -> None:
    names = (f"{place.name}.refused-{n}" for n in range(1, _MAX_NAMES))
    aside = next(name for name in names if _kind(name, directory) is None)
    os.rename(place.name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    text = f"the sandbox refused to create {place.name}: it was moved to {aside}"
    report(Refusal(Refused.WRITE, text, str(place)))


def report_leftovers(private: PrivateFiles, home: Path, report: Report) -> None:
    """Report the files that are deleted with the command's private /tmp and home directory."""
    result = [*_files(private.temp, Path("/tmp")), *_files(private.home, home)]
    if not result:
        return
    names = ", ".join(map(one_line, result[:_MAX_NAMED]))
    more = f" and {len(result) - _MAX_NAMED} more" if len(result) > _MAX_NAMED else ""
    text = f"{names}{more}: /tmp and the home directory are the command's own and end with it"
    report(Refusal(Refused.LOST, f"not kept: {text}"))


def _files(place: Path, visible_path: Path) -> Iterator[str]:
    """The files below `place` that have content, named as the command saw them."""
    pending, count = [str(place)], 0
    while pending and count < _MAX_ENTRIES:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                result = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue  # unreadable, or too deep
        count += len(result)
        for entry in result:
            if directory == str(place) and _CACHES.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) and entry.stat().st_size:
                yield f"{visible_path}{entry.path.removeprefix(str(place))}"
