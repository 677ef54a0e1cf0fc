"""One request and its answer, streamed or whole, in the shape of any API."""

import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import Backend, ModelInfo
from shepherd.errors import ContextFullError
from shepherd.events import EventCallback
from shepherd.messages import JsonObject, Message
from shepherd.server.access.key import KeyScope
from shepherd.server.access.meter import Work
from shepherd.server.agent.options import RequestOptions, options_of
from shepherd.server.agent.task_rounds import TaskRounds
from shepherd.server.agent.turn import AgentTurn
from shepherd.server.errors import ApiError, log_failure, to_api_error, unsupported
from shepherd.server.exchange import Call, Exchange
from shepherd.server.generation import (
    Choices,
    GenerationSource,
    check_whole,
    log_warnings,
    open_choices,
)
from shepherd.server.progress import ProgressStream
from shepherd.server.record import key_has
from shepherd.server.responses import (
    EventStreamResponse,
    Frames,
    JsonResponse,
    while_connected,
)
from shepherd.server.settings import ServerContext
from shepherd.turn.fitting import make_room


class Exchanges:
    """Answers the requests of one API."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def respond(self, request: Request, call: Call) -> Response:
        """The response to `call`; hanging up stops the work.

        The prompt is processed before the first header is sent, so what can't be answered is an
        error response either way.
        """
        call = replace(call, options=options_of(request))
        headers = call.options.response_headers
        if call.stream:
            keepalive = self._context.settings.keepalive
            return EventStreamResponse(
                lambda: self.open_frames(call), _logged, keepalive, call.stream_format, headers
            )
        body = await while_connected(request.receive, self._whole(call))
        return JsonResponse(body, headers=headers)

    async def count_tokens(self, request: Request, call: Call) -> int:
        """How many tokens the prompt of `call` takes; hanging up stops the work."""
        call = replace(call, options=options_of(request))
        return await while_connected(request.receive, self._count(call))

    async def _count(self, call: Call) -> int:
        async with self._leased(call) as backend:
            exchange = (await self._prepare(call, backend)).exchange
            if self._context.meter is not None:
                await self._context.meter.check_tokens()
            try:
                return await backend.count_session_tokens(exchange.session)
            except ContextFullError as error:
                raise to_api_error(error, backend.info.context_size) from error

    async def _whole(self, call: Call) -> JsonObject | list[JsonObject]:
        async with self._leased(call) as backend:
            prepared = await self._prepare(call, backend)
            async with self._open(prepared) as choices:
                generations = await choices.results()
        for generation in generations:
            check_whole(generation)
        return prepared.exchange.answer.whole(generations)

    @asynccontextmanager
    async def open_frames(self, call: Call) -> AsyncGenerator[Frames]:
        """The frames of the answer; leaving the context stops the work."""
        async with self._leased(call) as backend:
            info = backend.info
            prepared = await self._prepare(call, backend)
            exchange = prepared.exchange
            if exchange.progress is None:
                async with self._open(prepared) as choices:
                    choices.start()
                    yield _reported(exchange.answer.frames(choices), info)
                return
            stream = ProgressStream(exchange.progress)
            opening = self._open(prepared, stream.listen)
            frames = _reported(stream.frames(opening, exchange.answer.frames), info)
            async with aclosing(frames):
                yield frames

    def _leased(self, call: Call) -> AbstractAsyncContextManager[Backend]:
        """The backend of the model, in use until the context is left."""
        context = self._context
        return context.monitor.leased(context.models, call.model, call.keep_alive)

    @asynccontextmanager
    async def _open(
        self, prepared: "_Prepared", callback: EventCallback = log_warnings
    ) -> AsyncGenerator[Choices]:
        opened, work = prepared.exchange.opened, _work(prepared.exchange)
        try:
            async with self._measured(prepared.backend, work):
                if work.max_tokens != prepared.exchange.max_tokens:
                    limited = replace(prepared.exchange, max_tokens=work.max_tokens)
                    prepared = replace(prepared, exchange=limited)
                if prepared.turn is not None:
                    prepared.turn.round_limit = work.round_limit
                    prepared.turn.give_back = work.give_back
                try:
                    async with _open_choices(prepared, callback) as choices:
                        if opened is not None:
                            opened(choices)
                        try:
                            yield choices
                        finally:
                            work.stats = choices.stats()
                finally:
                    stats = work.stats or ()
                    self._context.monitor.note_usage(stats, prepared.exchange.count)
        except ContextFullError as error:
            raise to_api_error(error, prepared.backend.info.context_size) from error

    def _measured(self, backend: Backend, work: Work) -> AbstractAsyncContextManager[None]:
        """Count the work for the key of the request."""
        meter = self._context.meter
        return nullcontext() if meter is None else meter.measured(backend, work)

    async def _prepare(self, call: Call, backend: Backend) -> "_Prepared":
        """The exchange, answered by the agent if there is one; raises ApiError."""
        if call.slow:
            exchange = await self._context.bodies.run(call.build, backend.info)
        else:
            exchange = call.build(backend.info)
        exchange = _with_truncation(exchange, call.options)
        agent, watched = self._context.agent, self._context.monitor.watched(backend)
        uses_tools = call.options.uses_tools and key_has(KeyScope.TOOLS)
        if agent is None or not (exchange.is_turn and uses_tools):
            source = watched if exchange.limited is None else exchange.limited(watched)
            return _Prepared(backend, source, exchange)
        if exchange.count > 1:
            message = "With --use-tools the server gives one answer to a request."
            raise unsupported(exchange.count_field, message)
        on_evicted = exchange.on_evicted
        turn = agent.turn(watched, exchange.session, call.options.owner, on_evicted)
        turn.task_rounds = TaskRounds(
            backend, self._context.meter, self._context.monitor, self._context.models.lease
        )
        if on_evicted is not None:
            on_evicted = turn.report_evicted
        return _Prepared(
            backend, turn, replace(exchange, session=turn.session, on_evicted=on_evicted), turn
        )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An exchange, and what generates its answer."""

    backend: Backend
    source: GenerationSource
    exchange: Exchange
    turn: AgentTurn | None = None


def _with_truncation(exchange: Exchange, options: RequestOptions) -> Exchange:
    """The exchange, whose conversation may be shortened if the request says so."""
    on_evicted = exchange.on_evicted
    if not options.truncates and on_evicted is None:
        return exchange

    def note(messages: Sequence[Message]) -> None:
        options.note_evicted(messages)
        if on_evicted is not None:
            on_evicted(messages)

    return replace(exchange, on_evicted=note)


def _work(exchange: Exchange) -> Work:
    return Work(
        [exchange.session, *exchange.later],
        exchange.count,
        exchange.max_tokens,
        shortens=exchange.on_evicted is not None,
    )


def _open_choices(
    prepared: _Prepared, callback: EventCallback
) -> AbstractAsyncContextManager[Choices]:
    """`open_choices`; where the exchange allows it, messages leave until the prompt fits."""
    exchange = prepared.exchange
    if exchange.on_evicted is not None:
        return _open_fitting(prepared, exchange.on_evicted, callback)
    count, max_tokens = exchange.count, exchange.max_tokens
    return open_choices(
        prepared.source, exchange.session, count, max_tokens, callback, exchange.later
    )


@asynccontextmanager
async def _open_fitting(
    prepared: _Prepared, on_evicted: Callable[[Sequence[Message]], None], callback: EventCallback
) -> AsyncGenerator[Choices]:
    """`open_choices`; `on_evicted` gets the messages that leave until the prompt fits."""
    backend, exchange = prepared.backend, prepared.exchange
    session = exchange.session
    for failures in itertools.count():
        async with AsyncExitStack() as held:
            opening = open_choices(
                prepared.source,
                session,
                exchange.count,
                exchange.max_tokens,
                callback,
                exchange.later,
            )
            try:
                choices = await held.enter_async_context(opening)
                await choices.begun()
            except ContextFullError as full:
                evicted = await make_room(session, backend, full, failures)
                if not evicted:
                    raise
                on_evicted(evicted)
                continue
            yield choices
            return


async def _reported(frames: Frames, info: ModelInfo) -> AsyncGenerator[str]:
    """The frames; a context that filled up is reported with the model's context size."""
    try:
        async for text in frames:
            yield text
    except ContextFullError as error:
        raise to_api_error(error, info.context_size) from error


def _logged(error: BaseException) -> ApiError:
    reported = to_api_error(error)
    log_failure(error, reported)
    return reported
