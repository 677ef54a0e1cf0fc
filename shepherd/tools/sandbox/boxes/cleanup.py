"""Restores protected paths that mounts can't protect: missing files and links."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.view.private import PrivateFiles
from shepherd.tools.sandbox.view.toolchains import HOME_STARTUP, real

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
        for place in self._missing:
            if real(place.parent) == place.parent and os.path.lexists(place):
                _move_aside(place, report)
        for place, target in self._links.items():
            if real(place.parent) != place.parent or _link(place) == target:
                continue
            if os.path.lexists(place):
                _move_aside(place, report)
            place.symlink_to(target)


def _link(place: Path) -> Path | None:
    with suppress(OSError):
        return place.readlink()
    return None


def _move_aside(place: Path, report: Report) -> None:
    names = (place.with_name(f"{place.name}.refused-{n}") for n in range(1, _MAX_NAMES))
    aside = next(name for name in names if not os.path.lexists(name))
    place.rename(aside)
    text = f"the sandbox refused to create {place.name}: it was moved to {aside.name}"
    report(Refusal(Refused.WRITE, text, str(place)))


def report_leftovers(private: PrivateFiles, home: Path, report: Report) -> None:
    """Report the files that are deleted with the command's private /tmp and home directory."""
    result = [*_files(private.temp, Path("/tmp")), *_files(private.home, home)]
    if not result:
        return
    names = ", ".join(result[:_MAX_NAMED])
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
