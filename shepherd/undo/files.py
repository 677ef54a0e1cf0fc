"""The files of one session: captured into the store, and restored from it."""

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from shepherd.tools.paths import reason
from shepherd.undo.restore import restore
from shepherd.undo.states import Capture, FileState, Kind
from shepherd.undo.store import UndoStore

BATCH_FILES = 100


class KeptFiles:
    """Captures and restores the files of the session `session`; all calls from one thread.

    `protects` tells whether a path holds a secret; `max_bytes` is the size of the largest file
    that is kept.
    """

    def __init__(
        self, store: UndoStore, session: str, protects: Callable[[Path], bool], max_bytes: int
    ) -> None:
        self.session = session
        self.max_bytes = max_bytes
        self._store = store
        self._protects = protects

    def states(self, paths: Iterable[str], seconds: float = math.inf) -> dict[str, FileState]:
        """The states of resolved paths; their contents are in the store afterwards.

        Paths for which the time does not suffice are left out.
        """
        deadline = time.monotonic() + seconds
        waiting: dict[str, bytes] = {}
        capture = Capture(waiting.__setitem__, self._protects, self.max_bytes)
        states: dict[str, FileState] = {}
        for path in paths:
            if time.monotonic() > deadline:
                break
            if path not in states:
                states[path] = capture.state(Path(path))
                if len(waiting) >= BATCH_FILES:
                    self._flush(waiting)
        self._flush(waiting)
        return states

    def protects(self, path: Path) -> bool:
        """Whether the content is never kept."""
        return self._protects(path)

    def restore(self, path: str, state: FileState) -> str:
        """Give the path this state; returns the reason if it can't have it, otherwise ""."""
        try:
            return restore(Path(path), state, self._store.get)
        except OSError as error:
            return reason(error)

    def can_restore(self, state: FileState) -> str:
        """The reason why a state can't be restored; "" if it can."""
        if state.kind is Kind.UNKEPT:
            return state.why or "it was not kept"
        if state.kind is Kind.FILE and self._store.get(state.detail) is None:
            return "it is not kept any more"
        return ""

    def content(self, state: FileState) -> bytes | None:
        """The bytes of a file's state; those of a link are its target."""
        if state.kind is Kind.LINK:
            return f"symbolic link to {state.detail}\n".encode("utf-8", "surrogateescape")
        return self._store.get(state.detail) if state.kind is Kind.FILE else None

    def _flush(self, waiting: dict[str, bytes]) -> None:
        self._store.put(self.session, waiting)
        waiting.clear()
