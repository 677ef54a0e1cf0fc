"""How requests share the sequences and the batches."""

from collections import Counter
from collections.abc import Sequence

from shepherd.backends.llamacpp.scheduling.job import Job

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


def next_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job:
    """The waiting job whose request has the fewest sequences; of those the first."""
    counts = Counter(job.request for job in active)
    return min(waiting, key=lambda job: counts[job.request])


def surplus_job(waiting: Sequence[Job], active: Sequence[Job]) -> Job | None:
    """The job that gives its sequence to a request that has none; None if no job has to.

    It is the youngest of the request with the most sequences, and never that request's last one.
    """
    counts = Counter(job.request for job in active)
    if all(counts[job.request] for job in waiting):
        return None
    several = [job for job in reversed(active) if counts[job.request] > 1]
    return max(several, key=lambda job: counts[job.request], default=None)


def shares(usable: Sequence[int], left: Sequence[int], room: int) -> list[int]:
    """How many tokens of each prompt come next, oldest prompt first; they fill the room.

    A prompt has `left` tokens to read and can use `usable` of them now. One half of the room is
    shared equally, so no prompt starves. The rest goes to the prompts that end soonest: a short
    one does not wait for a long one, and equal ones end one after the other.
    """
    equal = (room + 1) // 2
    each = max(1, equal // max(1, len(usable)))
    given: list[int] = []
    for tokens in usable:
        given.append(min(tokens, each, equal))
        equal -= given[-1]
    spare = room - sum(given)
    for place in sorted(range(len(usable)), key=left.__getitem__):
        more = min(usable[place] - given[place], spare)
        given[place] += more
        spare -= more
    return given


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
