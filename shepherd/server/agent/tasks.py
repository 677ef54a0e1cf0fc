"""`task` behind the server: sub-agents of the model that answers a request, or of another one.

The key of the request pays for each of their rounds. While tools run, the turn itself holds tokens
that it does not use, and sub-agents that work at the same time hold what others may need. So a
round first takes what the turn can spare, and then waits for others to end.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from http import HTTPStatus

from msgspec import Struct, structs

from shepherd.agents import TASK, RunTask, Tasks
from shepherd.backends.base import Backend, Generation, ModelInfo, Observer, Prefilled
from shepherd.errors import ToolError
from shepherd.events import Event, EventCallback, Stats, TextEvent
from shepherd.messages import ToolSpec
from shepherd.server import errors, record
from shepherd.server.access.meter import Budget, Meter, Work
from shepherd.server.generation import stats_so_far
from shepherd.server.operation.monitor import Monitor
from shepherd.session import Session
from shepherd.tools.tool import AnyTool
from shepherd.turn import TurnLimits

_current_tasks: ContextVar[Tasks | None] = ContextVar("tasks_of_turn", default=None)


def turn_task(
    providers: Sequence[str] = (), address: Callable[[str], str] = lambda _name: ""
) -> RunTask:
    """`task` for the turn of a request; `providers` and `address` are as in `RunTask`."""
    return RunTask(_tasks, address, providers)


def _tasks() -> Tasks:
    """The sub-agents of the turn that calls `task`; raises ToolError outside of a turn."""
    tasks = _current_tasks.get()
    if tasks is None:
        raise ToolError(f"{TASK} works in a conversation only")
    return tasks


class Accounts(Struct, frozen=True):
    """What a turn's work is counted with: `budget` and `watch` are the turn's own.

    Sub-agents hold tokens of the same key with `meter`. `lease` opens another model by its name.
    """

    budget: Budget
    watch: Observer
    meter: Meter
    monitor: Monitor
    lease: Callable[[str], AbstractAsyncContextManager[Backend]]


class TaskRounds:
    """Holds and counts the tokens of all sub-agents of one turn, which `backend` answers.

    `give_back` releases the tokens that the turn holds and does not use while its tools run. Other
    models stay in use until `aclose`.
    """

    def __init__(self, backend: Backend, accounts: Accounts, give_back: Callable[[], None]) -> None:
        self._backend = backend
        self._accounts = accounts
        self._give_back = give_back
        self._leases = AsyncExitStack()
        self._other_models: dict[str, Backend] = {}  # by the name that the model gave
        self._one_opens = asyncio.Lock()
        self._running_rounds = 0
        self._round_ended = asyncio.Event()  # of the next one, then a new one

    async def open_backend(self) -> Backend:
        """The backend of a sub-agent of the same model, which counts as a request of the key.

        Raises ToolError if the key has no request left.
        """
        return await self._counted(self._backend)

    async def get(self, provider: str) -> Backend:
        """As `open_backend`, of another model; raises ToolError if the key may not use it."""
        async with self._one_opens:  # two sub-agents may ask for the same model at once
            if provider not in self._other_models:
                try:
                    leased = await self._leases.enter_async_context(self._accounts.lease(provider))
                except errors.ApiError as error:
                    raise ToolError(error.message) from error
                self._other_models[provider] = leased
        return await self._counted(self._other_models[provider])

    async def aclose(self) -> None:
        """Let other models go; no sub-agent works any more."""
        self._other_models.clear()
        await self._leases.aclose()

    async def _counted(self, backend: Backend) -> Backend:
        """The backend, for one more request of the key; raises ToolError if it has none left."""
        key = record.current_key()
        if key is not None:
            try:
                await self._accounts.meter.limits.count_request(key)
            except errors.ApiError as error:
                raise ToolError(error.message) from error
        return backend

    @asynccontextmanager
    async def measured(self, backend: Backend, work: Work) -> AsyncGenerator[None]:
        """`Budget.measured`; raises ToolError if the key has not enough tokens left.

        Waits while other sub-agents of the turn hold tokens that this round needs.
        """
        async with AsyncExitStack() as held:
            await self._hold(held, backend, work)
            try:
                yield
            finally:
                self._accounts.monitor.note(work.total())

    async def _hold(self, held: AsyncExitStack, backend: Backend, work: Work) -> None:
        """Hold the tokens of a round until the stack is closed; raises ToolError."""
        self._give_back()
        while True:
            # of this moment: a round that ends from now on is not missed
            round_ended = self._round_ended
            measuring = self._accounts.meter.budget().measured(backend, work)
            try:
                await measuring.__aenter__()
            except errors.ApiError as error:
                # an end while the tokens were asked for may have freed them, so ask again
                others_hold_tokens = self._running_rounds > 0 or round_ended.is_set()
                if error.status != HTTPStatus.TOO_MANY_REQUESTS or not others_hold_tokens:
                    raise ToolError(error.message) from error
                await round_ended.wait()
                continue
            self._running_rounds += 1
            # left in the reverse order: the tokens are free before others are woken
            held.callback(self._note_round_ended)
            held.push_async_exit(measuring)
            return

    def _note_round_ended(self) -> None:
        """Wake all that wait for tokens now; the next ones wait for the next end."""
        self._running_rounds -= 1
        self._round_ended.set()
        self._round_ended = asyncio.Event()


class _TaskObserver(Observer):
    """Measures the rounds of one sub-agent, and limits them to what the key has left."""

    def __init__(self, rounds: TaskRounds) -> None:
        self._rounds = rounds
        self._uncounted_requests = 1  # a sub-agent is one request, however many rounds it has
        self._max_tokens = 0  # of the round that runs, as the key allows it; 0: no limit
        self._written_characters = 0
        self._final_stats: Stats | None = None

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """The prompt of a round, for which tokens of the key are held until it has ended."""
        work = Work([session], answers=1, max_tokens=0, requests=self._uncounted_requests)
        async with self._rounds.measured(backend, work):
            self._uncounted_requests = 0  # this round has counted it
            async with super().prefilled(backend, session, callback, count) as prompts:
                self._max_tokens = work.max_tokens
                self._written_characters, self._final_stats = 0, None
                try:
                    yield prompts
                finally:  # a round that was interrupted is counted too
                    estimate = stats_so_far(prompts[0], self._written_characters)
                    work.stats = [self._final_stats or estimate]

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """The answer of a round, within the tokens that are held for it."""

        def listen(event: Event) -> bool:
            if isinstance(event, TextEvent):
                self._written_characters += len(event.text)
            return callback(event)

        limit = smaller_limit(max_tokens, self._max_tokens)
        generation = await backend.generate_from_prefilled(prompt, listen, limit)
        self._final_stats = generation.stats
        return generation


def smaller_limit(one: int, other: int) -> int:
    """The smaller of two limits of tokens; 0 is no limit, so the other one holds then."""
    return min(one, other) or max(one, other)


@asynccontextmanager
async def sub_agents(
    session: Session,
    rounds: TaskRounds,
    limits: TurnLimits,
    max_tasks: int,
    offer: Callable[[ModelInfo], Sequence[ToolSpec]],
    client_tools: frozenset[str],
) -> AsyncGenerator[None]:
    """Let calls of `task` find the sub-agents of the turn that answers `session`.

    `max_tasks` of them work at once. The limits of the answer hold for each of them. What only the
    client's answer needs, such as its stop texts, does not. `offer` selects the tools for a model.
    """

    def offered(tools: Iterable[AnyTool], model: ModelInfo) -> list[ToolSpec]:
        """Of a sub-agent's tools, those that the settings offer to its model."""
        names = {tool.name for tool in tools}
        return [spec for spec in offer(model) if spec.name in names]

    sampling = structs.replace(session.sampling, stop=None, logprobs=None)
    tasks = Tasks(
        session=lambda: structs.replace(session, sampling=sampling, archive=None),
        limits=lambda: structs.replace(limits, evicts=True, observer=_TaskObserver(rounds)),
        backend=rounds.open_backend,
        backends=rounds,
        offer=offered,
        slots=asyncio.Semaphore(max_tasks),
        client_tools=client_tools,
    )
    token = _current_tasks.set(tasks)
    try:
        yield
    finally:
        _current_tasks.reset(token)
        await rounds.aclose()
