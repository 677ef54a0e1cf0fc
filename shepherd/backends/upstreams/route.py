"""The way of one request through the upstreams."""

import logging

import httpx

from shepherd.affinity import Prefix
from shepherd.backends.api.http.failures import Failure
from shepherd.backends.api.http.retry import Gate
from shepherd.backends.base import Backend, Generation
from shepherd.backends.failover import Route
from shepherd.backends.upstreams.group import UpstreamGroup
from shepherd.backends.upstreams.upstream import Upstream
from shepherd.errors import BusyError, ShepherdError, UnreachableError
from shepherd.events import EventCallback

logger = logging.getLogger(__name__)


class UpstreamRoute(Route):
    """Takes a request to each upstream once, then after a pause again, as single servers are."""

    def __init__(self, group: UpstreamGroup, prefix: Prefix) -> None:
        self._group = group
        self._prefix = prefix
        self._current: Upstream | None = None
        self._tried: set[Upstream] = set()
        self._repeated: set[Upstream] = set()
        self._rounds = 0

    async def backend(self) -> Backend:
        if self._current is None:
            self._current = self._group.take(self._prefix, self._tried)
        return await self._current.ready()

    async def move_on(
        self, failed: Backend | None, error: ShepherdError, callback: EventCallback
    ) -> None:
        upstream = self._current
        if upstream is None or not (failed is None or _is_failure(error)):
            raise error
        if _is_broken(error) and upstream not in self._repeated:
            self._repeated.add(upstream)  # it may only have closed an idle connection
            return
        if isinstance(error, BusyError):
            upstream.be_busy(error, error.retry_after)
        else:
            upstream.fail(error)
        self.close()
        self._tried.add(upstream)
        if len(self._tried) == len(self._group.upstreams):
            await self._begin_round(error, callback)
        logger.warning("A request leaves %s: %s", upstream.url, error)

    def finish(self, generation: Generation) -> None:
        if self._current is not None:
            if generation.broken:
                self._current.fail(UnreachableError(generation.broken))
            else:
                self._current.succeed(generation.stats)
        self.close()

    def close(self) -> None:
        if self._current is not None:
            self._current.end()
            self._current = None

    async def _begin_round(self, error: ShepherdError, callback: EventCallback) -> None:
        """Pause before all upstreams are tried again; raises `error` if that makes no sense."""
        self._rounds += 1
        policy, timing = self._group.retry, self._group.timing
        after = error.retry_after if isinstance(error, BusyError) else 0.0
        is_last = self._rounds >= policy.max_attempts or after > policy.max_retry_after
        if is_last or not _is_transient(error):
            raise error
        seconds = after + policy.pause(self._rounds, timing.jitter())
        if not Gate(callback).tell_pause(str(error), seconds):
            raise error
        await timing.sleep(seconds)
        self._tried.clear()


def _is_failure(error: ShepherdError) -> bool:
    """Whether another upstream may answer: the error is not the request's own."""
    return isinstance(error, UnreachableError | BusyError)


def _is_broken(error: ShepherdError) -> bool:
    """Whether a connection broke after it was made."""
    failure = error.__cause__
    reason = failure.__cause__ if isinstance(failure, Failure) else None
    return isinstance(reason, httpx.NetworkError | httpx.RemoteProtocolError) and not isinstance(
        reason, httpx.ConnectError
    )


def _is_transient(error: ShepherdError) -> bool:
    cause = error.__cause__
    return isinstance(cause, Failure) and cause.transient
