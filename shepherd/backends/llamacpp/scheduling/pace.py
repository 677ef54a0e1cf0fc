"""How much of a prompt goes into one step, so that cancelling and other streams wait little."""

ALONE_SECONDS = 0.12
BESIDE_SECONDS = 0.08
"""A request that comes waits for the step that runs, then for its own: 0.2 s together."""
FIRST = 128
LEAST = 32
LEAST_BESIDE = 16
"""The smallest chunks; smaller ones waste too much. Below 240 tokens a second the two steps that a
request waits for take longer than 0.2 s."""
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
        if tokens < LEAST_BESIDE or seconds <= 0:
            return
        speed = tokens / seconds
        slower = speed < self._speed  # attention over more tokens: the next step is no faster
        self._speed = speed if slower or not self._speed else (self._speed + speed) / 2

    def limit(self, room: int, *, beside_others: bool, prompts: int = 1) -> int:
        """The most prompt tokens for the next step, of the `room` that its batch has.

        `beside_others` says that requests generate or are about to, and `prompts` is how many
        prompts are read.
        """
        alone = not beside_others and prompts == 1
        seconds, least = (ALONE_SECONDS, LEAST) if alone else (BESIDE_SECONDS, LEAST_BESIDE)
        share = self._batch_size // BESIDE_SHARE if beside_others else self._batch_size
        fitting = int(self._speed * seconds) if self._speed else FIRST
        return min(room, max(1, min(share, max(least, fitting))))
