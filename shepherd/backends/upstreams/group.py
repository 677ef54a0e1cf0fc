"""The upstreams of one provider, and which of them takes a request."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from shepherd.affinity import Choice, Prefix
from shepherd.backends.api.http.retry import RetryPolicy, Timing
from shepherd.backends.upstream_state import Health
from shepherd.backends.upstreams.upstream import Upstream


class Router(Protocol):
    """Chooses an upstream by its URL; see `AffinityRouter`."""

    def choose(self, prefix: Prefix, loads: Mapping[str, float]) -> Choice[str]: ...

    def record(self, prefix: Prefix, replica: str) -> None: ...


class UpstreamGroup:
    """Upstreams with one model; `retry` counts rounds in which all of them have failed."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        router: Router,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.upstreams = list(upstreams)
        self.retry = retry or RetryPolicy()
        self.timing = timing or Timing()
        self._router = router
        self._by_url = {upstream.url: upstream for upstream in upstreams}

    def take(self, prefix: Prefix, tried: Collection[Upstream]) -> Upstream:
        """The upstream for a prompt, which counts as sent; at least one must be left.

        If none of the others is up, the one that may come back first is tried.
        """
        rest = [upstream for upstream in self.upstreams if upstream not in tried]
        loads = {u.url: float(u.running) for u in rest if u.health is Health.UP}
        if loads:
            upstream = self._by_url[self._router.choose(prefix, loads).replica]
        else:
            upstream = min(rest, key=lambda u: u.retry_at)
        self._router.record(prefix, upstream.url)
        upstream.begin()
        return upstream
