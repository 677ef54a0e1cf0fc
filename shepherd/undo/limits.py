"""Tells what the limits of the store will cost, before it is lost."""

import os
import stat
from collections.abc import Callable, Iterable
from datetime import datetime

from shepherd.tools.text import pluralize
from shepherd.undo.files import KeptFiles
from shepherd.undo.store import UndoStore

MAX_NAMED = 5


class LimitNotices:
    """Sentences for the user, each of them once; `name` returns the name of a path."""

    def __init__(self, store: UndoStore, files: KeptFiles, name: Callable[[str], str]) -> None:
        self._store = store
        self._files = files
        self._name = name
        self._announced = set[str]()
        self._is_full = False

    def losses(self, unkept: Iterable[tuple[str, str]]) -> list[str]:
        """About the files that can't be kept, with the reasons."""
        new = [(path, why) for path, why in unkept if path not in self._announced]
        self._announced.update(path for path, _ in new)
        lines = [f"/undo could not bring back {self._name(p)}: {why}." for p, why in new]
        if len(new) > MAX_NAMED:
            more = pluralize(len(new) - MAX_NAMED, "more file")
            lines[MAX_NAMED:] = [f"/undo could not bring back {more} either."]
        return lines

    def removals(self, paths: Iterable[str]) -> list[str]:
        """About what is old in the store, if it has to go before these files can be kept."""
        if self._is_full:
            return []
        limits = self._store.limits
        sizes = (size for size in map(_size, paths) if size <= limits.file_bytes)
        oldest = self._store.oldest_to_go(min(sum(sizes), limits.call_bytes))
        self._is_full = oldest > 0
        if not oldest:
            return []
        day = f"{datetime.fromtimestamp(oldest / 10**9).astimezone():%Y-%m-%d}"
        limit = f"undo.max_mib = {limits.max_bytes >> 20}"
        return [f"The store of /undo is full ({limit}): its oldest files, from {day} on, go now."]


def _size(path: str) -> int:
    """The size of a regular file, 0 of anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
