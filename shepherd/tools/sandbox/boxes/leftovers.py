"""What a command wrote to places that are its own, and that go with it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.view.private import PrivateFiles

_MAX_ENTRIES = 2000
_MAX_NAMED = 3
_CACHES = re.compile(
    r"tmp[a-z0-9_]{6,8}|pytest-of-.*|pip-.*|npm-.*|node-.*|v8-.*|go-build.*|go-link-.*|hsperfdata_.*"
    r"|cc[A-Za-z0-9]{6}\..*|rustc.*|cargo-.*|uv-.*|matplotlib-.*|yarn--.*|bunx-.*|tsx-.*|jest_.*"
    r"|\.(?:cache|npm|node-gyp|local|cargo|gradle|m2|config|nv|bun|yarn|mypy_cache|ruff_cache|X.*"
    r"|dotnet|nuget|java|pki|python_history|lesshst|wget-hsts|bash_history|sqlite_history|.*-unix)"
)
"""What programs leave there for themselves, so that nobody misses it."""


def tell_leftovers(private: PrivateFiles, home: Path, report: Report) -> None:
    """Report what is lost with the command's own /tmp and home directory, if anything."""
    found = [*_files(private.temp, Path("/tmp")), *_files(private.home, home)]
    if not found:
        return
    named = ", ".join(found[:_MAX_NAMED])
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    text = f"{named}{more}: /tmp and the home directory are the command's own and end with it"
    report(Refusal(Refused.LOST, f"not kept: {text}"))


def _files(place: Path, shown: Path) -> Iterator[str]:
    """The files below `place` that have content, named as the command saw them."""
    pending, count = [str(place)], 0
    while pending and count < _MAX_ENTRIES:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue  # closed by the command, or too deep
        count += len(found)
        for entry in found:
            if folder == str(place) and _CACHES.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) and entry.stat().st_size:
                yield f"{shown}{entry.path.removeprefix(str(place))}"
