"""The measurements in the format of Prometheus."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from shepherd.backends.upstream_state import Health, UpstreamState
from shepherd.server.models import LoadedModel
from shepherd.server.operation.metrics import Distribution, Distributions, Labels, Metrics

_CACHE = (
    ("hits", "shepherd_cache_hits", "Prompts that began with tokens of a cache."),
    ("tokens", "shepherd_cached_tokens", "Tokens that came from a cache."),
    ("evictions", "shepherd_cache_evictions", "Entries that were removed from a cache."),
)
_CACHE_STATE = (
    ("entries", "shepherd_cache_entries", "Prompts in a cache."),
    ("bytes", "shepherd_cache_bytes", "Bytes of a cache."),
)
_UPSTREAM = (
    ("requests", "shepherd_upstream_requests", "Requests that were sent to an upstream."),
    ("failures", "shepherd_upstream_failures", "Requests that failed at an upstream."),
    ("prompt_tokens", "shepherd_upstream_prompt_tokens", "Tokens of prompts."),
    ("cached_tokens", "shepherd_upstream_cached_tokens", "Those of them from its cache."),
)
_UPSTREAM_STATE = (("running", "shepherd_upstream_running", "Requests that it is answering."),)


def exposition(metrics: Metrics, accept: str) -> tuple[bytes, str]:
    """All measurements, and their media type; `accept` is the header of the request."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Measurements(metrics))
    ProcessCollector(registry=registry)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Measurements(Collector):
    """The measurements of a server at the moment of reading."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names need no check, as the registry has no other collector of ours."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        metrics = self._metrics
        yield _counter(
            "shepherd_requests",
            "Requests that have ended.",
            ("wire", "model", "status"),
            metrics.requests,
        )
        yield _counter(
            "shepherd_tokens",
            "Tokens of prompts, those of them from a cache, and generated ones.",
            ("wire", "model", "kind"),
            metrics.tokens,
        )
        yield from self._times()
        yield from self._state()
        yield from self._llamacpp()

    def _times(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _histogram(
            "shepherd_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("wire",),
            metrics.seconds,
        )
        yield _histogram(
            "shepherd_queue_wait_seconds",
            "Seconds that a request waited for a model, a sequence and other prompts.",
            ("model",),
            metrics.wait,
        )
        yield _histogram(
            "shepherd_time_to_first_token_seconds",
            "Seconds from a request to the first text of its answer.",
            ("wire", "model"),
            metrics.first_token,
        )
        yield _histogram(
            "shepherd_time_between_tokens_seconds",
            "Seconds between two pieces of text of an answer, which are mostly tokens.",
            ("model",),
            metrics.between_tokens,
        )

    def _state(self) -> Iterator[Metric]:
        metrics, models = self._metrics, self._metrics.models()
        yield GaugeMetricFamily(
            "shepherd_requests_running", "Requests that are being answered.", metrics.running
        )
        yield GaugeMetricFamily(
            "shepherd_connections", "Open connections.", value=metrics.connections()
        )
        yield GaugeMetricFamily("shepherd_models_loaded", "Loaded models.", value=len(models))
        queue, memory, vram = Counter[Labels](), Counter[Labels](), Counter[Labels]()
        for model in models:
            label = (metrics.label(model.name),)
            queue[label] += model.backend.waiting_requests
            memory[label] += model.memory.ram
            vram[label] += model.memory.vram
        names = ("model",)
        yield _gauge("shepherd_queue_requests", "Requests without a sequence.", names, queue)
        yield _gauge("shepherd_model_memory_bytes", "Estimated memory.", names, memory)
        yield _gauge("shepherd_model_vram_bytes", "Estimated memory of GPUs.", names, vram)
        yield from self._caches(models)
        yield from self._upstreams(models)

    def _llamacpp(self) -> Iterator[Metric]:
        """The totals under the names of llama.cpp's server, which have no labels."""
        tokens = Counter[str]()
        for (_, _, kind), count in self._metrics.tokens.items():
            tokens[kind] += count
        read = max(0, tokens["prompt"] - tokens["cached"])
        for name, text, value in (
            ("prompt_tokens", "Tokens of prompts that were read.", read),
            ("prompt_tokens_cached", "Tokens of prompts from a cache.", tokens["cached"]),
            ("tokens_predicted", "Generated tokens.", tokens["generated"]),
        ):
            yield CounterMetricFamily(f"llamacpp:{name}", text, value=value)
        others = max(0, self._metrics.running - 1)  # without the request for these numbers
        waiting = sum(model.backend.waiting_requests for model in self._metrics.models())
        for name, text, value in (
            ("requests_processing", "Requests that are being answered.", others),
            ("requests_deferred", "Requests without a sequence.", waiting),
        ):
            yield GaugeMetricFamily(f"llamacpp:{name}", text, value=value)

    def _caches(self, models: Sequence[LoadedModel]) -> Iterator[Metric]:
        places = ("model", "tier")
        for field, name, text in _CACHE:
            yield _counter(name, text, places, self._tiers(models, field))
        for field, name, text in _CACHE_STATE:
            yield _gauge(name, text, places, self._tiers(models, field))

    def _upstreams(self, models: Sequence[LoadedModel]) -> Iterator[Metric]:
        places = ("model", "upstream")
        states = {
            (self._metrics.label(model.name), state.url): state
            for model in models
            for state in model.backend.upstreams
        }
        up = {labels: int(state.health is Health.UP) for labels, state in states.items()}
        text = "Whether a server of a provider that has several takes requests."
        yield _gauge("shepherd_upstream_up", text, places, up)
        for field, name, text in _UPSTREAM_STATE:
            yield _gauge(name, text, places, _values(states, field))
        for field, name, text in _UPSTREAM:
            yield _counter(name, text, places, _values(states, field))

    def _tiers(self, models: Sequence[LoadedModel], field: str) -> Counter[Labels]:
        """A value of all caches by model and tier."""
        values: Counter[Labels] = Counter()
        for model in models:
            label = self._metrics.label(model.name)
            for tier in model.backend.cache_tiers:
                values[label, tier.name] += getattr(tier, field)
        return values


def _values(states: Mapping[Labels, UpstreamState], field: str) -> Mapping[Labels, int]:
    return {labels: getattr(state, field) for labels, state in states.items()}


def _counter(name: str, text: str, names: Sequence[str], values: Mapping[Labels, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=names)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _gauge(name: str, text: str, names: Sequence[str], values: Mapping[Labels, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=names)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(name: str, text: str, names: Sequence[str], values: Distributions) -> Metric:
    family = HistogramMetricFamily(name, text, labels=names)
    for labels, value in values.items():
        family.add_metric(labels, _buckets(value), value.total)
    return family


def _buckets(values: Distribution) -> list[tuple[str, float]]:
    bounds = [*(str(float(bound)) for bound in values.bounds), "+Inf"]
    return list(zip(bounds, accumulate(values.counts), strict=True))
