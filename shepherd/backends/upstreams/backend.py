"""The backend of a provider with several servers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.embedding import Embedder
from shepherd.backends.failover import FailoverBackend, Route
from shepherd.backends.upstream_state import Health, UpstreamState
from shepherd.backends.upstreams.embedder import UpstreamsEmbedder
from shepherd.backends.upstreams.group import UpstreamGroup
from shepherd.backends.upstreams.prefix import session_prefix
from shepherd.backends.upstreams.route import UpstreamRoute
from shepherd.errors import UnreachableError
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.tasks import end_tasks

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
        return replace(infos[0], context_size=min(sizes, default=0))

    @property
    def upstreams(self) -> Sequence[UpstreamState]:
        return [upstream.state for upstream in self.group.upstreams]

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
    def embedder(self) -> Embedder | None:
        return UpstreamsEmbedder(self.group) if self._opened[0].embedder else None

    @property
    def count_error(self) -> float | None:
        return self._opened[0].count_error

    def route(self, session: Session) -> Route:
        return UpstreamRoute(self.group, session_prefix(session))

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self._opened[0].count_message_tokens(session, message)

    async def count_session_tokens(self, session: Session) -> int:
        return await self._opened[0].count_session_tokens(session)

    async def aclose(self) -> None:
        self._closed = True
        for upstream in self.group.upstreams:
            upstream.end_checks()
        await end_tasks(*self._tasks)
        for upstream in self.group.upstreams:
            await upstream.aclose()

    @property
    def _opened(self) -> list[Backend]:
        """The backends of the upstreams that have answered; at least one once it is open."""
        backends = (upstream.backend for upstream in self.group.upstreams)
        return [backend for backend in backends if backend is not None]

    async def _start(self) -> None:
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
