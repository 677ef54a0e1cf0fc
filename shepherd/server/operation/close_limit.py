"""Ends the process of a server whose models can't be closed."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger("shepherd.server")

CLOSE_SECONDS = 30.0
"""The time to save conversations and to free the models, once nothing runs any more."""


class CloseLimit:
    """Ends the process if it is still there some time after `start`.

    A thread that computes can't be ended, and Python waits for it: a library's fault would keep a
    server that was told to end.
    """

    def __init__(
        self, seconds: float = CLOSE_SECONDS, end: Callable[[int], None] = os._exit
    ) -> None:
        self._seconds = seconds
        self._end = end
        self._timer = threading.Timer(seconds, self._give_up)
        self._timer.daemon = True

    def start(self) -> None:
        """Begin to wait for the end."""
        self._timer.start()

    def cancel(self) -> None:
        """All is closed; safe without a start."""
        self._timer.cancel()

    def _give_up(self) -> None:
        logger.error("The models were not closed in %g seconds: the server ends", self._seconds)
        with suppress(OSError, ValueError):  # it may be closed
            sys.stderr.flush()
        self._end(1)
