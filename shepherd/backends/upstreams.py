"""The backend of a provider with several servers, and the way of a request through them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TypeVar

import httpx
from msgspec.structs import replace

from shepherd.affinity import AffinityRouter, Balance, Prefix, canonical, prefix_of
from shepherd.backends import embedding
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.estimate import TokenEstimator
from shepherd.backends.api.http.failures import Failure
from shepherd.backends.api.http.retry import Gate, RateLimiter, RateLimits, RetryPolicy, Timing
from shepherd.backends.base import Backend, BackendStatus, Generation, Health, ModelInfo
from shepherd.backends.connect import connect
from shepherd.backends.failover import FailoverBackend, Route
from shepherd.backends.upstream import CheckPolicy, Upstream, UpstreamGroup
from shepherd.config.provider import Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.errors import BusyError, InvalidRequestError, ShepherdError, UnreachableError
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import Message, message_to_json
from shepherd.prices import Price
from shepherd.session import Session
from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""Once one upstream has answered, opening waits so long for the others."""


class UpstreamsBackend(FailoverBackend):
    """Answers each conversation with the upstream that has it in its cache.

    An upstream that fails before an answer has begun is replaced for this request, and gets no
    others until a check succeeds. Use `open`.
    """

    def __init__(self, group: UpstreamGroup) -> None:
        self.group = group
        self._tasks: list[asyncio.Task[object]] = []
        self._closed = False

    @classmethod
    async def open(cls, group: UpstreamGroup) -> "UpstreamsBackend":
        """Connect to the upstreams; those that don't answer are connected later.

        Raises the first one's error if none answers.
        """
        backend = cls(group)
        try:
            await backend._start()
        except BaseException:
            await backend.aclose()
            raise
        return backend

    @property
    def info(self) -> ModelInfo:
        """The model, with the smallest of the context sizes."""
        infos = [backend.info for backend in self._opened]
        sizes = [info.context_size for info in infos if info.context_size]
        embedder = UpstreamsEmbedder(self.group) if infos[0].embedder else None
        return replace(infos[0], context_size=min(sizes, default=0), embedder=embedder)

    @property
    def status(self) -> BackendStatus:
        return BackendStatus(upstreams=[upstream.state for upstream in self.group.upstreams])

    @property
    def alive(self) -> bool:
        return not self._closed

    async def reachable(self) -> bool:
        """Whether any upstream is up; if none is, all are checked now."""
        if not self.alive:
            return False
        upstreams = self.group.upstreams
        is_up = any(upstream.health is not Health.DOWN for upstream in upstreams)
        return is_up or any(await asyncio.gather(*(upstream.check() for upstream in upstreams)))

    @property
    def current(self) -> Backend:
        return self._opened[0]

    def route(self, session: Session) -> Route:
        return UpstreamRoute(self.group, session_prefix(session))

    async def aclose(self) -> None:
        self._closed = True
        await end_tasks(*self._tasks)
        for upstream in self.group.upstreams:
            await upstream.aclose()

    @property
    def _opened(self) -> list[Backend]:
        """The backends of the upstreams that have answered; at least one once it is open."""
        backends = (upstream.backend for upstream in self.group.upstreams)
        return [backend for backend in backends if backend is not None]

    async def _start(self) -> None:
        """Open all upstreams at once, and check them from then on; see `open`."""
        upstreams = self.group.upstreams
        checks = [asyncio.create_task(upstream.check()) for upstream in upstreams]
        self._tasks += checks
        pending = set(checks)
        while pending and not self._opened:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            await asyncio.wait(pending, timeout=GRACE_SECONDS)
        if not self._opened:
            raise upstreams[0].error or UnreachableError("No upstream answers.")
        self._tasks += [asyncio.create_task(upstream.watch()) for upstream in upstreams]
        problems = [str(u.error or u.url) for u in upstreams if u.backend is None]
        if problems:
            number = f"{len(problems)} of {len(upstreams)} servers don't answer."
            self._pending_warning = " ".join([number, *problems])


class UpstreamsEmbedder(embedding.Embedder):
    """Sends each request to the least busy upstream, and elsewhere if that one fails."""

    def __init__(self, group: UpstreamGroup) -> None:
        self._group = group

    async def embed(self, request: embedding.EmbeddingInput) -> embedding.Embeddings:
        return await self._run(lambda embedder: embedder.embed(request))

    async def rank(self, query: str, documents: Sequence[str]) -> embedding.Ranking:
        return await self._run(lambda embedder: embedder.rank(query, documents))

    async def count(self, request: embedding.EmbeddingInput | embedding.RankingInput) -> int:
        return await self._run(lambda embedder: embedder.count(request))

    async def _run(self, work: Callable[[embedding.Embedder], Awaitable[T]]) -> T:
        """The result of the first upstream that does the work."""
        no_affinity = Prefix(key=random.getrandbits(64))  # vectors have no cache to be near to
        route = UpstreamRoute(self._group, no_affinity, prompt=False)
        try:
            return await route.run(lambda backend: work(_embedder(backend)), ignore_events)
        finally:
            route.close()


def _embedder(backend: Backend) -> embedding.Embedder:
    """The backend's embedder; raises InvalidRequestError without one."""
    info = backend.info
    if info.embedder is None:
        raise InvalidRequestError(f"{info.id} makes no embeddings.", "model")
    return info.embedder


class UpstreamRoute(Route):
    """Takes a request to each upstream once, then after a pause again, as single servers are."""

    def __init__(self, group: UpstreamGroup, prefix: Prefix, *, prompt: bool = True) -> None:
        """`prompt`: the request is one, and no input for embeddings."""
        self._group = group
        self._is_prompt = prompt
        self._prefix = prefix
        self._current_upstream: Upstream | None = None
        self._tried: set[Upstream] = set()
        """Those that have failed in this round."""
        self._repeated: set[Upstream] = set()
        """Those that got the request once more after a broken connection."""
        self._failed_rounds = 0

    async def backend(self) -> Backend:
        """That of the current upstream, which is chosen now if there is none."""
        if self._current_upstream is None:
            self._current_upstream = self._group.take(self._prefix, self._tried)
        return await self._current_upstream.ready()

    async def move_on(
        self, failed: Backend | None, error: ShepherdError, callback: EventCallback
    ) -> None:
        """Leave the current upstream, unless only an idle connection of it broke."""
        upstream = self._current_upstream
        is_own_error = failed is not None and not isinstance(error, UnreachableError | BusyError)
        if upstream is None or is_own_error:  # another upstream would answer the same
            raise error
        if _is_broken(error) and upstream not in self._repeated:
            self._repeated.add(upstream)  # it may only have closed an idle connection: once more
            return
        if isinstance(error, BusyError):
            upstream.be_busy(error, error.retry_after)
        else:
            upstream.fail(error, prompt=self._is_prompt)
        self.close()
        self._tried.add(upstream)
        if len(self._tried) == len(self._group.upstreams):
            await self._begin_round(error, callback)
        logger.warning("A request leaves %s: %s", upstream.url, error)

    def finish(self, generation: Generation) -> None:
        """Note the answer, which may be only half of one."""
        if self._current_upstream is not None:
            if generation.broken:
                self._current_upstream.fail(UnreachableError(generation.broken), prompt=True)
            else:
                self._current_upstream.succeed(generation.stats)
        self.close()

    def close(self) -> None:
        """Leave the current upstream; safe to call twice."""
        if self._current_upstream is not None:
            self._current_upstream.end()
            self._current_upstream = None

    async def _begin_round(self, error: ShepherdError, callback: EventCallback) -> None:
        """Pause before all upstreams are tried again; raises `error` if that makes no sense."""
        self._failed_rounds += 1
        policy, timing = self._group.retry, self._group.timing
        retry_after = error.retry_after if isinstance(error, BusyError) else 0.0
        is_last = self._failed_rounds >= policy.max_attempts
        cause = error.__cause__
        is_transient = isinstance(cause, Failure) and cause.transient
        if is_last or not is_transient or retry_after > policy.max_retry_after:
            raise error
        seconds = retry_after + policy.pause(self._failed_rounds, timing.jitter())
        goes_on = Gate(callback).tell_pause(str(error), seconds)
        if not goes_on:
            raise error
        await timing.sleep(seconds)
        self._tried.clear()


def _is_broken(error: ShepherdError) -> bool:
    """Whether a connection broke after it was made."""
    failure = error.__cause__
    reason = failure.__cause__ if isinstance(failure, Failure) else None
    if isinstance(reason, httpx.ConnectError):  # a kind of NetworkError, before there is one
        return False
    return isinstance(reason, httpx.NetworkError | httpx.RemoteProtocolError)


def session_prefix(session: Session) -> Prefix:
    """The chain of the system message, the tools and the messages."""
    tools = (canonical([t.name, t.description, t.parameters]) for t in session.tools)
    return prefix_of([session.system_message, *tools], map(_text, session.messages))


def _text(message: Message) -> str:
    """A text that is different for different messages; images count by their hash."""
    if not message.images:
        return canonical(message_to_json(message))
    images = [blake2b(image.data, digest_size=16).hexdigest() for image in message.images]
    return canonical([images, message_to_json(message.without_images())])


ONCE = RetryPolicy(max_attempts=1)
"""A failed request goes to another upstream instead of being repeated at once."""


async def open_upstreams(
    provider: Provider,
    opening: Callable[[Provider], Awaitable[Backend]],
    *,
    checks: CheckPolicy | None = None,
    retry: RetryPolicy | None = None,
) -> UpstreamsBackend:
    """Connect to all addresses of the provider; `opening` opens a provider with a single one.

    Raises the first one's error if none answers.
    """
    router = AffinityRouter[str](Balance(provider.affinity_factor, provider.affinity_slack))
    policy, timing = checks or CheckPolicy(interval=provider.check_seconds), Timing()
    limits = RateLimits(provider.requests_per_minute, provider.tokens_per_minute)
    limiter = RateLimiter(limits, timing)
    estimators: dict[str, TokenEstimator] = {}

    async def open_one(url: str) -> Backend:
        """The backend of one address; the limits are those of all of them together."""
        backend = await opening(provider.at(url))
        if isinstance(backend, ApiBackend):
            backend.client.limiter = limiter
            backend.client.first_byte_seconds = provider.first_byte_seconds or None
            # What one upstream teaches about its model's tokens is true for all.
            model = backend.info.id
            backend.estimator = estimators.setdefault(model, backend.estimator)
        return backend

    upstreams = [
        Upstream(url, partial(open_one, url), policy, timing, router.forget)
        for url in provider.urls
    ]
    group = UpstreamGroup(upstreams, router, timing, retry or RetryPolicy())
    return await UpstreamsBackend.open(group)


def single_opener(
    book: ProviderBook, prices: Mapping[str, Price] | None = None
) -> Callable[[Provider], Awaitable[Backend]]:
    """Opens one upstream of an API."""
    return partial(connect, book=book, retry=ONCE, prices=prices)
