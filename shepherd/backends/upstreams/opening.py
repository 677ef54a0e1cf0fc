"""Opens a provider with several addresses."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from shepherd.affinity import AffinityRouter, Balance
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.estimate import TokenEstimator
from shepherd.backends.api.http.retry import RateLimiter, RateLimits, RetryPolicy, Timing
from shepherd.backends.base import Backend
from shepherd.backends.connect import connect
from shepherd.backends.upstreams.backend import UpstreamsBackend
from shepherd.backends.upstreams.upstream import CheckPolicy, Router, Upstream, UpstreamGroup
from shepherd.config.provider import Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.prices import Price

ONCE = RetryPolicy(max_attempts=1)
"""A failed request goes to another upstream instead of being repeated at once."""


async def open_upstreams(
    provider: Provider,
    opening: Callable[[Provider], Awaitable[Backend]],
    *,
    router: Router | None = None,
    checks: CheckPolicy | None = None,
    retry: RetryPolicy | None = None,
) -> UpstreamsBackend:
    """Connect to all addresses of the provider; `opening` opens a provider with a single one.

    Raises the first one's error if none answers.
    """
    balance = Balance(provider.affinity_factor, provider.affinity_slack)
    affinity = AffinityRouter[str](balance)
    policy, timing = checks or CheckPolicy(interval=provider.check_seconds), Timing()
    shared = _Shared(provider, timing)
    upstreams = [
        Upstream(url, partial(shared.open, opening, url), policy, timing, affinity.forget)
        for url in provider.urls
    ]
    return await UpstreamsBackend.open(UpstreamGroup(upstreams, router or affinity, retry))


def single_opener(
    book: ProviderBook, prices: Mapping[str, Price] | None = None
) -> Callable[[Provider], Awaitable[Backend]]:
    """Opens one upstream of an API."""
    return partial(connect, book=book, retry=ONCE, prices=prices)


class _Shared:
    """What the upstreams of a provider have in common: its limits, and how tokens are estimated."""

    def __init__(self, provider: Provider, timing: Timing) -> None:
        limits = RateLimits(provider.requests_per_minute, provider.tokens_per_minute)
        self._provider = provider
        self._limiter = RateLimiter(limits, timing.clock, timing.sleep)
        self._estimators: dict[str, TokenEstimator] = {}

    async def open(self, opening: Callable[[Provider], Awaitable[Backend]], url: str) -> Backend:
        """The backend of one address."""
        backend = await opening(self._provider.at(url))
        if isinstance(backend, ApiBackend):
            backend.client.limiter = self._limiter
            estimator = self._estimators.setdefault(backend.info.id, backend.estimator)
            backend.estimator = estimator
        return backend
