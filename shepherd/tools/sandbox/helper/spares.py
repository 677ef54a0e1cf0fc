"""Helpers that are started ahead of time, so that a command need not wait for one."""

import threading
import weakref
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress

from shepherd.errors import ToolError
from shepherd.tools.sandbox.helper.helper import Helper
from shepherd.tools.sandbox.profile import Limits


class Spares:
    """The helpers of one box; from the first command on, one is ready for the next."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._ready: list[Helper] = []
        self._making: threading.Thread | None = None
        weakref.finalize(self, _close, self._ready)  # at the end of the session, too

    @contextmanager
    def take(self, limits: Limits) -> Generator[Helper]:
        """A helper in groups with these limits; nothing of it is alive afterwards.

        Raises OSError or ToolError if it can't be started.
        """
        with closing(self._spare(limits) or Helper(self._module, limits)) as helper:
            yield helper

    def refill(self, limits: Limits) -> None:
        """Start one in a thread, if none is ready."""
        with self._lock:
            if not self._ready and self._making is None:
                self._making = threading.Thread(target=self._make, args=(limits,), name="helper")
                self._making.start()

    def _make(self, limits: Limits) -> None:
        with suppress(OSError, ToolError):  # the next command starts its own, and reports that
            helper = Helper(self._module, limits)
            with self._lock:
                self._ready.append(helper)

    def _spare(self, limits: Limits) -> Helper | None:
        with self._lock:
            making, self._making = self._making, None
        if making is not None:
            making.join()
        with self._lock:
            helper = self._ready.pop() if self._ready else None
        if helper is None or (helper.limits == limits and helper.is_alive()):
            return helper
        helper.close()
        return None


def _close(helpers: list[Helper]) -> None:
    while helpers:
        helpers.pop().close()
