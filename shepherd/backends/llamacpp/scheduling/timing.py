"""The time of batches, by the work that was really computed."""

from collections.abc import Callable, Sequence

from shepherd.backends.llamacpp.native.context import Stopwatch
from shepherd.backends.llamacpp.scheduling.planner import Part
from shepherd.backends.llamacpp.scheduling.shares import EXCLUSIVE_STEP_SECONDS

MAX_UNREAD_SECONDS = EXCLUSIVE_STEP_SECONDS
"""Work that may be queued before a wait: as long as the longest step of a prompt."""


class BatchTimer:
    """Passes each batch with its seconds to `note`. Owner thread only.

    On a CPU a batch is computed when `llama_decode` returns. On a GPU it is only queued. There a
    batch whose logits are read next ends with that read, which waits anyway. Other batches share
    the time until the next wait, by their tokens. At most `MAX_UNREAD_SECONDS` of work are queued,
    so that a cancel or a new request waits no longer than for one step.
    """

    def __init__(self, stopwatch: Stopwatch, note: Callable[[Sequence[Part], float], None]) -> None:
        self._stopwatch = stopwatch
        self._note = note
        self._unread: list[Sequence[Part]] = []
        self._started = self._returned = 0.0

    def begin(self) -> None:
        """Call this before a batch is decoded."""
        if not self._unread:
            self._started = self._stopwatch.now()

    def returned(self) -> None:
        """Call this when `llama_decode` returns."""
        self._returned = self._stopwatch.now()

    def add(self, parts: Sequence[Part], speed: float) -> None:
        """Add a decoded batch; `speed` is that of prompts in tokens per second, 0 if unknown."""
        if not self._stopwatch.returns_early:
            self._note(parts, self._returned - self._started)
            return
        self._unread.append(parts)
        if self._must_wait(parts, speed):
            self.settle()

    def settle(self) -> None:
        """Wait for all queued batches and note them."""
        if self._unread:
            self._end(self._stopwatch.finished())

    def _must_wait(self, parts: Sequence[Part], speed: float) -> bool:
        """Whether results are read next, or no further batch of this size may be queued."""
        if not speed or any(part.reads for part in parts):
            return True
        return (sum(map(_tokens, self._unread)) + _tokens(parts)) / speed > MAX_UNREAD_SECONDS

    def _end(self, time: float) -> None:
        batches, self._unread = self._unread, []
        started, self._started = self._started, time
        each = (time - started) / max(1, sum(map(_tokens, batches)))
        for parts in batches:
            self._note(parts, each * _tokens(parts))


def _tokens(parts: Sequence[Part]) -> int:
    return sum(len(part.tokens) for part in parts)
