"""The rounds of sub-agents: the key of the request pays for each of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType

from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.backends.forwarding import ForwardingBackend
from shepherd.errors import ToolError
from shepherd.events import Event, EventCallback, Stats, TextEvent
from shepherd.server.access.meter import Meter, Work
from shepherd.server.errors import ApiError
from shepherd.server.generation import stats_so_far
from shepherd.server.operation.monitor import Monitor
from shepherd.server.record import current_key
from shepherd.session import Session

LIMIT_REACHED = 429


class TaskRounds:
    """Holds and counts the tokens of all sub-agents of one turn, which `backend` answers.

    `give_back` releases the tokens that the turn holds and does not use while its tools run.
    `lease` opens another model by its name; such models stay in use until `aclose`.
    """

    def __init__(
        self,
        backend: Backend,
        meter: Meter | None,
        monitor: Monitor,
        lease: Callable[[str], AbstractAsyncContextManager[Backend]],
    ) -> None:
        self._backend = backend
        self._lease = lease
        self._leases = AsyncExitStack()
        self._others: dict[str, Backend] = {}
        self._opening = asyncio.Lock()
        self.give_back: Callable[[], None] = _nothing
        self._meter = meter
        self._monitor = monitor
        self._running = 0
        self._ended = asyncio.Event()

    async def open_backend(self) -> Backend:
        """The backend of a sub-agent of the same model, which counts as a request of the key.

        Raises ToolError if the key has no request left.
        """
        return await self._counted(self._backend)

    async def get(self, provider: str) -> Backend:
        """As `open_backend`, of another model; raises ToolError if the key may not use it."""
        async with self._opening:
            if provider not in self._others:
                try:
                    leased = await self._leases.enter_async_context(self._lease(provider))
                except ApiError as error:
                    raise ToolError(error.message) from error
                self._others[provider] = leased
        return await self._counted(self._others[provider])

    async def aclose(self) -> None:
        """Let other models go; no sub-agent works any more."""
        self._others.clear()
        await self._leases.aclose()

    async def _counted(self, backend: Backend) -> Backend:
        key = current_key()
        if self._meter is not None and key is not None:
            try:
                await self._meter.count_request(key)
            except ApiError as error:
                raise ToolError(error.message) from error
        return TaskBackend(backend, self)

    @asynccontextmanager
    async def measured(self, backend: Backend, work: Work) -> AsyncGenerator[None]:
        """`Meter.measured`; raises ToolError if the key has not enough tokens left.

        Waits while other sub-agents of the turn hold tokens that this round needs.
        """
        async with AsyncExitStack() as held:
            if self._meter is not None:
                await self._hold(held, self._meter, backend, work)
            try:
                yield
            finally:
                self._monitor.note_usage(work.stats or (), 1)

    async def _hold(self, held: AsyncExitStack, meter: Meter, backend: Backend, work: Work) -> None:
        while True:
            ended = self._ended
            self.give_back()
            measuring = meter.measured(backend, work)
            try:
                await measuring.__aenter__()
            except ApiError as error:
                others_hold = error.status == LIMIT_REACHED and (self._running or ended.is_set())
                if not others_hold:
                    raise ToolError(error.message) from error
                await ended.wait()
                continue
            self._running += 1
            held.callback(self._end_round)
            held.push_async_exit(measuring)
            return

    def _end_round(self) -> None:
        self._running -= 1
        self._ended.set()
        self._ended = asyncio.Event()


class TaskBackend(ForwardingBackend):
    """The backend of one sub-agent, whose rounds are measured."""

    def __init__(self, backend: Backend, rounds: TaskRounds) -> None:
        super().__init__(backend)
        self._rounds = rounds
        self._requests = 1

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        work = Work([session], 1, 0, requests=self._requests)
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._rounds.measured(self._backend, work))
            self._requests = 0
            inner = await self._backend.prefill_session(session, callback)
            await held.enter_async_context(inner)
            return TaskPrompt(inner, work, held.pop_all())

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, TaskPrompt):
            raise TypeError("the prompt is another backend's")
        limit = min(filter(None, (max_tokens, prefilled.work.max_tokens)), default=0)
        generation = await self._backend.generate_from_prefilled(
            prefilled.inner, prefilled.counting(callback), limit
        )
        prefilled.final = generation.stats
        return generation


class TaskPrompt(Prefilled):
    """The prompt of one round; leaving the context counts the tokens that the round took."""

    def __init__(self, inner: Prefilled, work: Work, held: AsyncExitStack) -> None:
        self.prompt_tokens = inner.prompt_tokens
        self.cached_tokens = inner.cached_tokens
        self.inner = inner
        self.work = work
        self.final: Stats | None = None
        self._held = held
        self._characters = 0

    def counting(self, callback: EventCallback) -> EventCallback:
        """The callback, before which the text is counted."""

        def listen(event: Event) -> bool:
            if isinstance(event, TextEvent):
                self._characters += len(event.text)
            return callback(event)

        return listen

    def stats(self) -> Stats:
        return self.final or stats_so_far(self.inner, self._characters)

    def release(self) -> None:
        self.inner.release()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.work.stats = [self.stats()]
        await self._held.__aexit__(exc_type, exc, traceback)


def _nothing() -> None:
    """Hold on to nothing: the key has no limit."""
