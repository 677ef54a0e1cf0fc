"""The last lines of a running command, sent to the user a few times a second."""

import asyncio
import time
from collections.abc import Mapping

from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.tools.redactor import Redactor
from shepherd.tools.text import plain_text

FIRST_SECONDS = 0.5
"""Commands that end sooner send nothing."""

SECONDS, MAX_SECONDS, SHARE = 0.25, 2.0, 0.01
"""The interval begins with 0.25 s; of a long run it is a hundredth of the time, at most 2 s."""

LINES = 5
_BYTES = 4096


class LiveTail:
    """Takes the output of one command, and sends its last lines while it runs."""

    def __init__(self, on_event: EventCallback, secrets: Mapping[str, str]) -> None:
        self._on_event = on_event
        self._redactors = Redactor(secrets), Redactor(secrets)
        self._kept = b""
        self._is_cut = False
        self._started = time.monotonic()
        self._next = self._started + FIRST_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._goes_on = True

    def out(self, data: bytes) -> bool:
        """Take standard output; False ends the command."""
        return self._feed(self._redactors[0].feed(data))

    def err(self, data: bytes) -> bool:
        """Take standard error; False ends the command."""
        return self._feed(self._redactors[1].feed(data))

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _feed(self, data: bytes) -> bool:
        kept = self._kept + data
        self._is_cut = self._is_cut or len(kept) > _BYTES
        self._kept = kept[-_BYTES:]
        if self._timer is None:
            delay = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._send)
        return self._goes_on

    def _send(self) -> None:
        self._timer = None
        now = time.monotonic()
        self._next = now + min(MAX_SECONDS, max(SECONDS, (now - self._started) * SHARE))
        text = plain_text(self._whole_lines().decode("utf-8", "replace")).rstrip("\n")
        lines = text.split("\n")[-LINES:]
        if text and self._goes_on:
            last = "\n".join(lines)
            self._goes_on = self._on_event(CallbackEvent.SYSTEM, last, Topic.OUTPUT, "")

    def _whole_lines(self) -> bytes:
        """The kept bytes without the rest of a line whose beginning is lost."""
        _, newline, rest = self._kept.partition(b"\n")
        return rest if self._is_cut and newline and rest else self._kept
