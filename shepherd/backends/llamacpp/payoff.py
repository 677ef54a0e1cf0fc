"""Whether drafting pays: what was accepted, and what a larger batch costs."""

from dataclasses import dataclass, field

UNKNOWN_CHANCE = 0.6
"""How likely a drafted token is taken to be right before anything was measured."""

MARGIN = 1.05
"""A draft must promise this much more speed."""

_LEARNING = 0.1
_SLOW_LEARNING = 0.02
_LEAST_SPREAD = 0.25
_FORGETTING = 0.998
_FORGETTING_CHANCE = 0.002
_OUTLIER = 4.0


class Chance:
    """How likely a drafted token is the one that the model chooses, if those before it were."""

    def __init__(self, everywhere: "Chance | None" = None) -> None:
        """`everywhere` is what all requests together learn; this one starts from it."""
        self.value: float = everywhere.value if everywhere else UNKNOWN_CHANCE
        self._everywhere = everywhere
        self._rate = _LEARNING if everywhere else _SLOW_LEARNING

    def note(self, accepted: int, drafted: int) -> None:
        """Learn from a draft: so many of its tokens were right, then one was not, if any."""
        self.value = 1 - (1 - self.value) * (1 - self._rate) ** accepted
        if accepted < drafted:
            self.value *= 1 - self._rate
        if self._everywhere is not None:
            self._everywhere.note(accepted, drafted)

    def forget(self) -> None:
        """Drift back to not knowing, for a draft that was not tried."""
        self.value += _FORGETTING_CHANCE * (UNKNOWN_CHANCE - self.value)

    def expected(self, length: int) -> float:
        """How many tokens of a draft of this length are right, on average."""
        chance = min(self.value, 0.999)
        return chance * (1 - chance**length) / (1 - chance)


class BatchCosts:
    """What a batch of so many tokens takes: a line through what was measured of late.

    While all batches are alike, the line's slope is slowly forgotten, so that larger batches get
    another trial.
    """

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0
        self._spread = self._together = 0.0
        self._slope = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a batch without prompts."""
        if not self._seconds:
            self._tokens, self._seconds = tokens, seconds
            return
        seconds = min(seconds, _OUTLIER * self.seconds(tokens))
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _LEARNING * more
        self._seconds += _LEARNING * longer
        self._spread = (1 - _LEARNING) * (self._spread + _LEARNING * more * more)
        self._together = (1 - _LEARNING) * (self._together + _LEARNING * more * longer)
        if self._spread > _LEAST_SPREAD:
            self._slope = max(0.0, self._together / self._spread)
        else:
            self._slope *= _FORGETTING

    def seconds(self, tokens: int) -> float:
        """What such a batch is expected to take; 0 before anything was measured."""
        least = self._seconds / _OUTLIER
        return max(least, self._seconds + self._slope * (tokens - self._tokens))


@dataclass(slots=True)
class StepBudget:
    """The next batch as it grows: `tokens` in it, which will give `gain` tokens of answers."""

    costs: BatchCosts
    tokens: int
    gain: float = field(init=False)
    extra_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.gain = float(self.tokens)

    def best_length(self, chance: Chance, most: int, each: float = 0.0) -> int:
        """How many tokens to draft for one request, 0 if it does not pay.

        `each` is what drafting one token takes, in seconds.
        """
        best, length = self._speed(0, 0.0, 0.0) * MARGIN, 0
        for count in range(1, most + 1):
            speed = self._speed(count, chance.expected(count), count * each)
            if speed > best:
                best, length = speed, count
        return length

    def add(self, chance: Chance, length: int, each: float = 0.0) -> None:
        """Put a draft in."""
        self.tokens += length
        self.gain += chance.expected(length)
        self.extra_seconds += length * each

    def _speed(self, length: int, gain: float, seconds: float) -> float:
        total = self.costs.seconds(self.tokens + length) + self.extra_seconds + seconds
        return (self.gain + gain) / total if total > 0 else 0.0
