"""How requests share the sequences and the batches."""

from collections.abc import Sequence

from shepherd.backends.llamacpp.native.devices import CPU_LIMITS, DeviceLimits

EXCLUSIVE_STEP_SECONDS = 0.12
INTERRUPTIBLE_STEP_SECONDS = 1.5
"""At most so much work is lost when a request comes. Larger steps take less time in all: Gemma 3
270M reads 2,000 tokens behind 13,000 in 8.4 s in steps of 512, and in 12.3 s in steps of 64."""
QUEUED_STEP_SECONDS = 1.0
"""The time of a step if other prompts wait: small steps would delay them all."""
SHARED_STEP_SECONDS = 0.08
"""A new request waits for the running step, then for its own: 0.2 s together."""
SHARED_BATCH_DIVISOR = 4
"""Prompts get at most this fraction of a batch while other requests generate."""


def shares(usable: Sequence[int], remaining: Sequence[int], room: int) -> list[int]:
    """The number of tokens of each prompt to read next, oldest prompt first.

    A prompt has `remaining` tokens to read, and `usable` of them fit the next step. One half of
    `room` is shared equally, so no prompt starves. The rest goes to the prompts that end soonest: a
    short prompt does not wait for a long one.
    """
    equal = (room + 1) // 2
    each = max(1, equal // max(1, len(usable)))
    assigned: list[int] = []
    for tokens in usable:
        assigned.append(min(tokens, each, equal))
        equal -= assigned[-1]
    spare = room - sum(assigned)
    for place in sorted(range(len(usable)), key=remaining.__getitem__):
        more = min(usable[place] - assigned[place], spare)
        assigned[place] += more
        spare -= more
    return assigned


class PrefillPace:
    """Measures how fast prompts are decoded, and chooses the size of their chunks."""

    def __init__(self, batch_size: int, limits: DeviceLimits = CPU_LIMITS) -> None:
        self._batch_size = batch_size
        self._limits = limits
        self._speed = 0.0

    @property
    def speed(self) -> float:
        """Tokens per second; 0 before any measurement."""
        return self._speed

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a step; small steps are ignored."""
        if tokens < self._limits.min_shared_chunk or seconds <= 0:
            return
        speed = tokens / seconds
        slower = speed < self._speed  # attention covers more tokens: the next step is not faster
        self._speed = speed if slower or not self._speed else (self._speed + speed) / 2

    def limit(
        self,
        room: int,
        *,
        is_shared: bool,
        prompts: int = 1,
        in_turn: bool = False,
        interruptible: bool = False,
    ) -> int:
        """The maximum of prompt tokens in the next step, at most `room`.

        `is_shared` says that other requests generate, or will soon. `prompts` are in the step, and
        `in_turn` says that others wait for it to end. `interruptible`: a new request ends the step.
        """
        limits = self._limits
        seconds, minimum = SHARED_STEP_SECONDS, limits.min_shared_chunk
        if not is_shared and (in_turn or prompts == 1):
            alone = QUEUED_STEP_SECONDS if in_turn else EXCLUSIVE_STEP_SECONDS
            seconds = INTERRUPTIBLE_STEP_SECONDS if interruptible and prompts == 1 else alone
            minimum = limits.min_chunk
        share = self._batch_size // SHARED_BATCH_DIVISOR if is_shared else self._batch_size
        fitting = int(self._speed * seconds) if self._speed else limits.initial_chunk
        return min(room, max(1, min(share, max(minimum, fitting))))

    def without_remainder(self, tokens: int) -> int:
        """At most so many tokens, as a step that attention computes without padding."""
        for size in self._limits.full_steps:
            if tokens > size:
                return tokens - tokens % size
        return tokens
