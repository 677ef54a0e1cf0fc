"""Whether drafting pays off: acceptance rates, and the cost of larger batches."""

from dataclasses import dataclass, field

from shepherd.backends.llamacpp.native.devices import CPU_LIMITS

MARGIN = 1.05
"""A draft must promise an increase of the speed by this factor."""

_LEARNING_RATE = 0.2
_COST_LEARNING = 0.1
_SLOW_LEARNING = 0.02
_MIN_VARIANCE = 0.25
_DECAY = 0.002
_OUTLIER = 4.0
_MIN_SHARE = 0.02


class AcceptanceRate:
    """The probability that the model accepts a drafted token, if it accepted those before it."""

    def __init__(self, prior: float, shared: "AcceptanceRate | None" = None) -> None:
        """`prior` is the value before any measurement.

        `shared` is the rate of all requests together; a request's own rate starts from it.
        """
        self.value: float = shared.value if shared else prior
        self._prior = prior
        self._shared = shared
        self._learning_rate = _LEARNING_RATE if shared else _SLOW_LEARNING

    def note(self, accepted: int, drafted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right."""
        # A moving average over single tokens. An accepted one counts as 1 and moves the value by
        # r * (1 - value); so many of them multiply the distance to 1 by (1 - r)**accepted. The
        # first wrong one counts as 0. Nothing is known of the tokens behind it.
        self.value = 1 - (1 - self.value) * (1 - self._learning_rate) ** accepted
        if accepted < drafted:
            self.value *= 1 - self._learning_rate
        if self._shared is not None:
            self._shared.note(accepted, drafted)

    def forget(self) -> None:
        """Move towards the prior, for a draft that was not tried."""
        self.value += _DECAY * (self._prior - self.value)

    def expected(self, length: int) -> float:
        """The expected number of accepted tokens in a draft of this length."""
        rate = min(self.value, 0.999)
        return rate * (1 - rate**length) / (1 - rate)


class BatchCosts:
    """The seconds that a batch takes, by its tokens: a line through recent measurements.

    While all batches have the same size, the slope decays to its minimum, so that larger batches
    are tried again.
    """

    def __init__(self, token_share: float = CPU_LIMITS.token_share) -> None:
        """`token_share` is the assumed cost of a token before any measurement."""
        self._token_share = token_share
        self._tokens = self._seconds = 0.0
        self._variance = self._covariance = 0.0
        self._slope = 0.0

    def note(self, tokens: int, seconds: float, prompt_speed: float = 0.0) -> None:
        """Learn from a batch without prompts; `prompt_speed` is in tokens per second.

        A token of a small batch never costs less than a token of a prompt.
        """
        if not self._seconds:
            self._tokens, self._seconds = tokens, seconds
            self._slope = self._min_slope(prompt_speed)
            return
        seconds = min(seconds, _OUTLIER * self.seconds(tokens))
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _COST_LEARNING * more
        self._seconds += _COST_LEARNING * longer
        self._variance = (1 - _COST_LEARNING) * (self._variance + _COST_LEARNING * more * more)
        self._covariance = (1 - _COST_LEARNING) * (
            self._covariance + _COST_LEARNING * more * longer
        )
        if self._variance > _MIN_VARIANCE:
            self._slope = max(0.0, self._covariance / self._variance)
        else:
            self._slope += _DECAY * (self._min_slope(prompt_speed) - self._slope)

    def seconds(self, tokens: int) -> float:
        """The expected seconds of a batch; 0 before any measurement."""
        return max(
            _MIN_SHARE * self._seconds, self._seconds + self._slope * (tokens - self._tokens)
        )

    def _min_slope(self, prompt_speed: float) -> float:
        return 1 / prompt_speed if prompt_speed else self._token_share * self._seconds


@dataclass(slots=True)
class StepBudget:
    """The next batch as it grows: its `tokens`, and the tokens of answers that it should `gain`."""

    costs: BatchCosts
    tokens: int
    gain: float = field(init=False)
    extra_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.gain = float(self.tokens)

    def best_length(
        self, rate: AcceptanceRate, max_tokens: int, seconds_per_token: float = 0.0
    ) -> int:
        """How many tokens to draft for one request; 0 if a draft does not pay off.

        `seconds_per_token` is the time that the draft model needs for one token.
        """
        best, length = 0.0, 0
        for count in range(1, max_tokens + 1):
            speed = self._speed(count, rate.expected(count), count * seconds_per_token)
            if speed <= best:  # every further token gains less
                break
            best, length = speed, count
        return length if best > MARGIN * self._speed(0, 0.0, 0.0) else 0

    def add(self, rate: AcceptanceRate, length: int, seconds_per_token: float = 0.0) -> None:
        """Add a draft to the batch."""
        self.tokens += length
        self.gain += rate.expected(length)
        self.extra_seconds += length * seconds_per_token

    def _speed(self, length: int, gain: float, seconds: float) -> float:
        total = self.costs.seconds(self.tokens + length) + self.extra_seconds + seconds
        return (self.gain + gain) / total if total > 0 else 0.0
