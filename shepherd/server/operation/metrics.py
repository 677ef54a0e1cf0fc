"""The server's measurements, counted with Prometheus's own client."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shepherd.backends.base import BackendStatus, Health
from shepherd.events import Stats
from shepherd.server.models import LoadedModel
from shepherd.server.record import RequestRecord

OTHER = "other"
"""The label of models that the server does not list, so that clients can't add series."""

MAX_MODELS = 200
"""The maximum of model names in labels; further ones are `OTHER`."""

REQUEST_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1, 5)

_CACHE_COUNTERS = (
    ("hits", "shepherd_cache_hits", "Prompts that began with tokens of a cache."),
    ("tokens", "shepherd_cached_tokens", "Tokens that came from a cache."),
    ("evictions", "shepherd_cache_evictions", "Entries that were removed from a cache."),
)
_CACHE_GAUGES = (
    ("entries", "shepherd_cache_entries", "Prompts in a cache."),
    ("bytes", "shepherd_cache_bytes", "Bytes of a cache."),
)
_Read: TypeAlias = Sequence[tuple[LoadedModel, BackendStatus]]
"""The models with the state of each, which is read once for all measures."""

_MODEL_GAUGES: Sequence[tuple[str, str, Callable[[LoadedModel, BackendStatus], float]]] = (
    (
        "shepherd_queue_requests",
        "Requests without a sequence.",
        lambda _, status: status.waiting_requests,
    ),
    ("shepherd_model_memory_bytes", "Estimated memory.", lambda model, _: model.memory.ram),
    ("shepherd_model_vram_bytes", "Estimated memory of GPUs.", lambda model, _: model.memory.vram),
)
_UPSTREAM_COUNTERS = (
    ("requests", "shepherd_upstream_requests", "Requests that were sent to an upstream."),
    ("failures", "shepherd_upstream_failures", "Requests that failed at an upstream."),
    ("prompt_tokens", "shepherd_upstream_prompt_tokens", "Tokens of prompts."),
    ("cached_tokens", "shepherd_upstream_cached_tokens", "Those of them from its cache."),
)

prometheus.disable_created_metrics()  # a second series for each, with the time of its first value


class Metrics(Collector):
    """The measurements of one server.

    `running` requests and open `connections` are counted up and down.
    """

    def __init__(
        self,
        known_models: Callable[[], Sequence[str]],
        models: Callable[[], Sequence[LoadedModel]] = tuple,
    ) -> None:
        """`known_models` gives the names that may be labels, `models` those that are loaded."""
        self._loaded_models = models
        self.running = 0
        self._longest = 0
        self._at_last_reading = (0.0, 0.0, 0.0, 0.0)
        self.connections = 0
        self._known_models = known_models
        self._model_labels: set[str] = {""}  # "" is that of a request without a model
        self.registry = registry = prometheus.CollectorRegistry()
        counter = partial(prometheus.Counter, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.requests = counter(
            "shepherd_requests", "Requests that have ended.", ("wire", "model", "status")
        )
        self.tokens = counter(
            "shepherd_tokens",
            "Tokens of prompts, those of them from a cache, generated, drafted and accepted ones.",
            ("wire", "model", "kind"),
        )
        self._work_seconds = counter(
            "shepherd_work_seconds",
            "Seconds of reading prompts and of generating.",
            ("model", "kind"),
        )
        self._seconds = histogram(
            "shepherd_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("wire",),
            buckets=REQUEST_BUCKETS,
        )
        self._wait = histogram(
            "shepherd_queue_wait_seconds",
            "Seconds that a request waited for a model, a sequence and other prompts.",
            ("model",),
            buckets=WAIT_BUCKETS,
        )
        self._first_token = histogram(
            "shepherd_time_to_first_token_seconds",
            "Seconds from a request to the first text of its answer.",
            ("wire", "model"),
            buckets=REQUEST_BUCKETS,
        )
        self._between_tokens = histogram(
            "shepherd_time_between_tokens_seconds",
            "Seconds between two pieces of text of an answer, which are mostly tokens.",
            ("model",),
            buckets=TOKEN_BUCKETS,
        )
        registry.register(self)
        prometheus.ProcessCollector(registry=registry)

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
        self.requests.labels(record.wire, self.label(record.model), str(record.status)).inc()
        self._seconds.labels(record.wire).observe(record.seconds)

    def count_work(self, wire: str, model: str, stats: Stats) -> None:
        """Count the tokens and the seconds of a request."""
        label = self.label(model)
        for kind, tokens in (
            ("prompt", stats.prompt_tokens),
            ("cached", stats.cached_tokens),
            ("generated", stats.completion_tokens),
            ("drafted", stats.drafted_tokens),
            ("accepted", stats.accepted_tokens),
        ):
            if tokens > 0:  # a kind that never comes needs no series
                self.tokens.labels(wire, label, kind).inc(tokens)
        self._work_seconds.labels(label, "prompt").inc(stats.prefill_seconds)
        self._work_seconds.labels(label, "generated").inc(stats.decode_seconds)
        self._longest = max(self._longest, stats.context_used)

    def observe_wait(self, model: str, seconds: float) -> None:
        """Note how long a request waited."""
        self._wait.labels(self.label(model)).observe(seconds)

    def observe_first_token(self, wire: str, model: str, seconds: float) -> None:
        """Note when the first text of an answer came."""
        self._first_token.labels(wire, self.label(model)).observe(seconds)

    def observe_next_token(self, model: str, seconds: float) -> None:
        """Note how long the next text of an answer took."""
        self._between_tokens.labels(self.label(model)).observe(seconds)

    def label(self, model: str) -> str:
        """The label of a model; `OTHER` for a name that the server does not list.

        Otherwise each made-up name in a request would add series, which stay in memory.
        """
        if model in self._model_labels:
            return model
        if len(self._model_labels) <= MAX_MODELS and model in self._known_models():
            self._model_labels.add(model)
            return model
        return OTHER

    def describe(self) -> Iterator[Metric]:
        """Nothing: a look at the models is not needed to register."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """What the server and its models are at the moment of reading."""
        models = [(model, model.backend.status) for model in self._loaded_models()]
        for name, text, value in (
            ("requests_running", "Requests that are being answered.", self.running),
            ("connections", "Open connections.", self.connections),
            ("models_loaded", "Loaded models.", len(models)),
        ):
            yield GaugeMetricFamily(f"shepherd_{name}", text, value=value)
        yield from self._models(models)
        yield from self._caches(models)
        yield from self._upstreams(models)
        yield from self._llamacpp(models)

    def _models(self, models: _Read) -> Iterator[Metric]:
        """The gauges of each model; of models with one label (`OTHER`) it is the sum."""
        for name, text, value_of in _MODEL_GAUGES:
            values = defaultdict[tuple[str, ...], float](float)
            for model, status in models:
                values[self.label(model.name),] += value_of(model, status)
            yield _filled(GaugeMetricFamily(name, text, labels=("model",)), values)

    def _caches(self, models: _Read) -> Iterator[Metric]:
        """The measures of each model's caches: in the context, in memory and on disk."""
        families = (CounterMetricFamily, _CACHE_COUNTERS), (GaugeMetricFamily, _CACHE_GAUGES)
        for family, metrics in families:
            for field, name, text in metrics:
                values = defaultdict[tuple[str, ...], float](float)
                for model, status in models:
                    label = self.label(model.name)
                    for tier in status.cache_tiers:
                        values[label, tier.name] += getattr(tier, field)
                yield _filled(family(name, text, labels=("model", "tier")), values)

    def _upstreams(self, models: _Read) -> Iterator[Metric]:
        """The measures of each server of a provider that has several."""
        places = ("model", "upstream")
        states = {
            (self.label(model.name), state.url): state
            for model, status in models
            for state in status.upstreams
        }
        up = {labels: int(state.health is Health.UP) for labels, state in states.items()}
        text = "Whether a server of a provider that has several takes requests."
        yield _filled(GaugeMetricFamily("shepherd_upstream_up", text, labels=places), up)
        running = {labels: state.running for labels, state in states.items()}
        name, text = "shepherd_upstream_running", "Requests that it is answering."
        yield _filled(GaugeMetricFamily(name, text, labels=places), running)
        for field, name, text in _UPSTREAM_COUNTERS:
            counts = {labels: getattr(state, field) for labels, state in states.items()}
            yield _filled(CounterMetricFamily(name, text, labels=places), counts)

    def _llamacpp(self, models: _Read) -> Iterator[Metric]:
        """What boards for llama.cpp's server show, under its names, which have no labels."""
        kinds = ("prompt", "cached", "generated", "drafted", "accepted")
        prompt, cached, written, drafted, accepted = (total(self.tokens, kind=k) for k in kinds)
        read = max(0, prompt - cached)  # our prompts include cached tokens
        reading, writing = (total(self._work_seconds, kind=k) for k in ("prompt", "generated"))
        now = (read, reading, written, writing)
        since = [new - old for new, old in zip(now, self._at_last_reading, strict=True)]
        self._at_last_reading = now
        statuses = [status for _, status in models]
        batches = sum(status.batches for status in statuses)
        for name, text, value in (
            ("prompt_tokens", "Tokens of prompts that were read.", read),
            ("prompt_tokens_cached", "Tokens of prompts from a cache.", cached),
            ("prompt_seconds", "Seconds of reading prompts.", reading),
            ("tokens_predicted", "Generated tokens.", written),
            ("tokens_predicted_seconds", "Seconds of generating.", writing),
            ("n_decode", "Batches that loaded models have computed.", batches),
            ("spec_decode_num_draft_tokens", "Tokens that were drafted.", drafted),
            ("spec_decode_num_accepted_tokens", "Those of them in answers.", accepted),
        ):
            yield CounterMetricFamily(f"llamacpp:{name}", text, value=value)
        parts = sum(status.batch_parts for status in statuses)
        for name, text, value in (
            ("prompt_tokens_seconds", "Tokens read a second.", _ratio(since[0], since[1])),
            ("predicted_tokens_seconds", "Tokens generated a second.", _ratio(since[2], since[3])),
            # without the request for these numbers
            ("requests_processing", "Requests being answered.", max(0, self.running - 1)),
            (
                "requests_deferred",
                "Requests without a sequence.",
                sum(status.waiting_requests for status in statuses),
            ),
            ("n_busy_slots_per_decode", "Requests in a batch.", _ratio(parts, batches)),
            ("n_tokens_max", "Tokens of the longest context.", self._longest),
        ):
            yield GaugeMetricFamily(f"llamacpp:{name}", text, value=value)


def _ratio(value: float, of: float) -> float:
    """How much for each of a number; 0 for none."""
    return value / of if of > 0 else 0.0


def total(counter: prometheus.Counter, **labels: str) -> float:
    """The sum of a counter's values that have these labels."""
    (metric,) = counter.collect()
    return sum(s.value for s in metric.samples if labels.items() <= s.labels.items())


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[tuple[str, ...], float]
) -> Metric:
    """A family with these values by their labels."""
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
