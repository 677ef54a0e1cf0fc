"""The server's measurements; `exposition` has them in the format of Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from shepherd.server.models import LoadedModel
from shepherd.server.operation.record import RequestRecord

Labels: TypeAlias = tuple[str, ...]

OTHER = "other"
"""The label of models that the server does not list, so that clients can't add series."""

MAX_MODELS = 200
"""The maximum of model names in labels; further ones are `OTHER`."""

REQUEST_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1, 5)


@dataclass(slots=True)
class Distribution:
    """How many values were at most each of `bounds`, and beyond; with their sum."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Distributions(dict[Labels, Distribution]):
    """Distributions by their labels; new ones begin empty."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self._bounds = bounds

    def __missing__(self, labels: Labels) -> Distribution:
        self[labels] = created = Distribution(self._bounds)
        return created


def _no_models() -> Sequence[LoadedModel]:
    return ()


def _nothing() -> int:
    return 0


class Metrics:
    """The measurements of one server; for one event loop.

    `known_models` are the names that may be labels. `models` and `connections` are read when the
    measurements are. Requests have the labels wire, model and status; tokens have wire, model and
    kind; times have the model, before it the wire for those from the start of a request.
    """

    def __init__(self, known_models: Callable[[], Sequence[str]]) -> None:
        self.models: Callable[[], Sequence[LoadedModel]] = _no_models
        self.connections: Callable[[], int] = _nothing
        self.running = 0
        self.requests: Counter[Labels] = Counter()
        self.tokens: Counter[Labels] = Counter()
        self.seconds = Distributions(REQUEST_BUCKETS)
        self.wait = Distributions(WAIT_BUCKETS)
        self.first_token = Distributions(REQUEST_BUCKETS)
        self.between_tokens = Distributions(TOKEN_BUCKETS)
        self._known_models = known_models
        self._labels: set[str] = {""}

    @contextmanager
    def count_running(self) -> Generator[None]:
        """Count a request as running."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def count_request(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        self.requests[record.wire, self.label(record.model), str(record.status)] += 1
        self.seconds[record.wire,].observe(record.seconds)

    def count_tokens(self, wire: str, model: str, kind: str, tokens: int) -> None:
        """Count tokens of a kind: `prompt`, `cached` or `generated`."""
        if tokens > 0:
            self.tokens[wire, self.label(model), kind] += tokens

    def observe_wait(self, model: str, seconds: float) -> None:
        """Note how long a request waited."""
        self.wait[self.label(model),].observe(seconds)

    def observe_first_token(self, wire: str, model: str, seconds: float) -> None:
        """Note when the first text of an answer came."""
        self.first_token[wire, self.label(model)].observe(seconds)

    def observe_next_token(self, model: str, seconds: float) -> None:
        """Note how long the next text of an answer took."""
        self.between_tokens[self.label(model),].observe(seconds)

    def label(self, model: str) -> str:
        """The label of a model."""
        if model in self._labels:
            return model
        if len(self._labels) <= MAX_MODELS and model in self._known_models():
            self._labels.add(model)
            return model
        return OTHER
