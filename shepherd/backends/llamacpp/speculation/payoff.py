"""Whether drafting pays: what was accepted, and what a larger batch costs."""

from dataclasses import dataclass, field

UNKNOWN_SHARE = 0.25
"""Of a batch's time, what one more token is taken to cost before anything was measured."""

MARGIN = 1.05
"""A draft must promise this much more speed."""

_LEARNING = 0.2
_COST_LEARNING = 0.1
_SLOW_LEARNING = 0.02
_LEAST_SPREAD = 0.25
_FORGETTING = 0.002
_OUTLIER = 4.0
_LEAST_SHARE = 0.02


class Chance:
    """How likely a drafted token is the one that the model chooses, if those before it were."""

    def __init__(self, unknown: float, everywhere: "Chance | None" = None) -> None:
        """`unknown` is what it is taken to be before anything was measured.

        `everywhere` is what all requests together learn; this one starts from it.
        """
        self.value: float = everywhere.value if everywhere else unknown
        self._unknown = unknown
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
        self.value += _FORGETTING * (self._unknown - self.value)

    def expected(self, length: int) -> float:
        """How many tokens of a draft of this length are right, on average."""
        chance = min(self.value, 0.999)
        return chance * (1 - chance**length) / (1 - chance)


class BatchCosts:
    """What a batch of so many tokens takes: a line through what was measured of late.

    While all batches are alike, the line's slope drifts to the least that it can be, so that
    larger batches get another trial.
    """

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0
        self._spread = self._together = 0.0
        self._slope = 0.0

    def note(self, tokens: int, seconds: float, prompt_speed: float = 0.0) -> None:
        """Learn from a batch without prompts, which are read at so many tokens a second.

        A token of a small batch never costs less than one of a prompt.
        """
        if not self._seconds:
            self._tokens, self._seconds = tokens, seconds
            self._slope = self._least(prompt_speed)
            return
        seconds = min(seconds, _OUTLIER * self.seconds(tokens))
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _COST_LEARNING * more
        self._seconds += _COST_LEARNING * longer
        self._spread = (1 - _COST_LEARNING) * (self._spread + _COST_LEARNING * more * more)
        self._together = (1 - _COST_LEARNING) * (self._together + _COST_LEARNING * more * longer)
        if self._spread > _LEAST_SPREAD:
            self._slope = max(0.0, self._together / self._spread)
        else:
            self._slope += _FORGETTING * (self._least(prompt_speed) - self._slope)

    def seconds(self, tokens: int) -> float:
        """What such a batch is expected to take; 0 before anything was measured."""
        return max(
            _LEAST_SHARE * self._seconds, self._seconds + self._slope * (tokens - self._tokens)
        )

    def _least(self, prompt_speed: float) -> float:
        return 1 / prompt_speed if prompt_speed else UNKNOWN_SHARE * self._seconds


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
        best, length = 0.0, 0
        for count in range(1, most + 1):
            speed = self._speed(count, chance.expected(count), count * each)
            if speed <= best:  # each further token gives less
                break
            best, length = speed, count
        return length if best > MARGIN * self._speed(0, 0.0, 0.0) else 0

    def add(self, chance: Chance, length: int, each: float = 0.0) -> None:
        """Put a draft in."""
        self.tokens += length
        self.gain += chance.expected(length)
        self.extra_seconds += length * each

    def _speed(self, length: int, gain: float, seconds: float) -> float:
        total = self.costs.seconds(self.tokens + length) + self.extra_seconds + seconds
        return (self.gain + gain) / total if total > 0 else 0.0
