"""The time of what a context computes, also where its calls return early."""

from collections.abc import Callable
from time import perf_counter
from typing import Protocol


class Computing(Protocol):
    """A context, as far as its time is measured."""

    @property
    def returns_early(self) -> bool:
        """Whether calls only queue work, as on a GPU."""
        ...

    def synchronize(self) -> None:
        """Wait until all queued work is computed."""
        ...


class Stopwatch:
    """The clock for everything that a context computes. All speeds are measured with it.

    Where llama.cpp computes on a GPU, `llama_decode` returns before the work is done. A time is
    only right after a wait. On a CPU there is nothing to wait for, and `finished` costs the same as
    `now`.
    """

    def __init__(self, context: Computing, clock: Callable[[], float] = perf_counter) -> None:
        self.returns_early = context.returns_early
        self._context = context
        self._clock = clock

    def now(self) -> float:
        """The time in seconds; work may still be queued."""
        return self._clock()

    def finished(self) -> float:
        """The time in seconds at which all queued work is computed; waits for it."""
        if self.returns_early:
            self._context.synchronize()
        return self._clock()
