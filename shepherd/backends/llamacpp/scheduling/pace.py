"""How much of a prompt goes into one step, so that cancelling and other streams wait little."""

ALONE_SECONDS = 0.15
BESIDE_SECONDS = 0.1
"""A request that comes waits for the step that runs, then for its own: 0.25 s together."""
FIRST = 128
LEAST = 32
BESIDE_SHARE = 4
"""Beside generating requests a prompt gets at most this fraction of a batch."""


class PrefillPace:
    """Learns how fast prompts are decoded and sizes their chunks by it."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._speed = 0.0

    @property
    def speed(self) -> float:
        """Tokens per second, 0 before anything was measured."""
        return self._speed

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a step; small ones tell nothing."""
        if tokens < LEAST or seconds <= 0:
            return
        speed = tokens / seconds
        self._speed = (self._speed + speed) / 2 if self._speed else speed

    def limit(self, room: int, *, beside_others: bool, prompts: int = 1) -> int:
        """The most prompt tokens for the next step, of the `room` that its batch has.

        `beside_others` says that requests generate, and `prompts` is how many prompts are read.
        """
        seconds = BESIDE_SECONDS if beside_others or prompts > 1 else ALONE_SECONDS
        share = self._batch_size // BESIDE_SHARE if beside_others else self._batch_size
        fitting = int(self._speed * seconds) if self._speed else FIRST
        return min(room, max(1, min(share, max(LEAST, fitting))))
