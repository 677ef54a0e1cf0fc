"""The files and directories of a tree whose names match a glob."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from shepherd.tasks import Stopped
from shepherd.tools.base import ToolContext
from shepherd.tools.files.access import FileAccess
from shepherd.tools.paths import glob_regex
from shepherd.tools.search.ignore import Ignored
from shepherd.tools.search.walk import SKIPPED, Tree, denied


@dataclass(frozen=True, slots=True)
class _Walking:
    """When a walk ends, and what it leaves out."""

    stopped: Stopped
    ignored: Ignored | None = None


def name_matcher(pattern: str) -> re.Pattern[str]:
    """The regular expression for relative paths; a `pattern` without a slash matches names."""
    anchored = pattern.rstrip("/").lstrip("/")
    if "/" not in pattern.rstrip("/"):
        anchored = f"**/{anchored}"
    return re.compile(glob_regex(anchored), re.DOTALL)


def find_names(
    root: Path, pattern: str, context: ToolContext, files: FileAccess, stopped: Stopped
) -> list[str]:
    """The matches, without ignored files; if only those match, they."""
    ignored = Ignored(root, keep=frozenset(pattern.split("/")))
    result = _matches(root, pattern, context, files, _Walking(stopped, ignored))
    if result or not ignored.hid:
        return result
    return _matches(root, pattern, context, files, _Walking(stopped))


def _matches(
    root: Path, pattern: str, context: ToolContext, files: FileAccess, walking: _Walking
) -> list[str]:
    matcher = name_matcher(pattern)
    skip = frozenset(name for name in SKIPPED if name not in pattern.split("/"))
    only_directories = pattern.endswith("/")
    directory = files.open_directory(root)
    try:
        return [
            entry.path + ("/" if entry.is_dir else "")
            for entry in Tree(root, context, skip, walking.ignored).walk(directory, walking.stopped)
            if (entry.is_dir or not only_directories)
            and matcher.fullmatch(entry.path)
            and (entry.is_dir or not denied(context, root / entry.path))
        ]
    finally:
        os.close(directory)
