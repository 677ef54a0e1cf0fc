"""Whether an idle conversation makes room for a long prompt."""

from collections.abc import Callable

_LEARNING_RATE = 0.05
_MIN_SPREAD = 256.0
"""Cells by which the measured batches must differ, as a standard deviation."""


class Crowding:
    """Compares attention over the cells of an idle conversation with putting it away.

    Attention computes over all cells in use, also over the masked ones of other conversations. On
    a CPU a fixed threshold decides. On a GPU the cost of a cell is learned: a line through the
    seconds of a token, by the cells in use. Before that is known, the idle conversation stays.
    """

    def __init__(self, threshold: int | None) -> None:
        """`threshold` is in new tokens times idle tokens; None learns instead."""
        self._threshold = threshold
        self._cells: float = 0.0
        self._seconds: float = 0.0
        self._variance: float = 0.0
        self._covariance: float = 0.0

    @property
    def learns(self) -> bool:
        """Whether measurements decide."""
        return self._threshold is None

    @property
    def pair_seconds(self) -> float:
        """The measured seconds for a new token and one more cell; 0 before it is known."""
        if self._variance < _MIN_SPREAD**2:
            return 0.0
        return max(0.0, self._covariance / self._variance)

    def note(self, tokens: int, cells: int, seconds: float) -> None:
        """Learn from a batch of prompts with so many cells in use."""
        each = seconds / tokens
        if not self._seconds:
            self._cells, self._seconds = cells, each
            return
        more, longer, rate = cells - self._cells, each - self._seconds, _LEARNING_RATE
        self._cells += rate * more
        self._seconds += rate * longer
        self._variance = (1 - rate) * (self._variance + rate * more * more)
        self._covariance = (1 - rate) * (self._covariance + rate * more * longer)

    def pays(self, new: int, idle: int, swap_seconds: Callable[[], float]) -> bool:
        """Whether to put away `idle` tokens before `new` ones are read.

        `swap_seconds` gives the time to put them away and to bring them back.
        """
        if self._threshold is not None:
            return new * idle >= self._threshold
        return new * idle * self.pair_seconds > swap_seconds()
