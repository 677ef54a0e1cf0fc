"""One request and its answer, streamed or whole, in the shape of any API."""

import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import Backend, Generation, ModelInfo
from shepherd.errors import ContextFullError
from shepherd.events import EventCallback
from shepherd.messages import JsonObject, Message
from shepherd.server.errors import ApiError, log_failure, to_api_error
from shepherd.server.generation import Choices, check_whole, log_warnings, open_choices
from shepherd.server.progress import ProgressStream, PromptProgress
from shepherd.server.responses import (
    SERVER_SENT_EVENTS,
    EventStreamResponse,
    Frames,
    JsonResponse,
    StreamFormat,
    while_connected,
)
from shepherd.server.settings import ServerContext
from shepherd.session import Session
from shepherd.turn.fitting import make_room


class Answer(Protocol):
    """A generation in the shape of one API."""

    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The body of the response, one generation for each choice."""
        ...

    def frames(self, choices: Choices) -> Frames:
        """The frames of a stream (see `frame`); an answer that broke off raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as a session to continue, and the shape of its answer.

    `count` answers are generated, each of at most `max_tokens` tokens; 0 means as many as fit, and
    `NO_TOKENS` none. The answers to the prompts of `later` follow, one for each. `opened` gets the
    choices before the first text. `progress` makes the frame of a stream that tells how far the
    prompt is read; the headers then do not wait for all of it. If the conversation does not fit,
    its oldest turns leave, and `on_evicted` gets their messages; without it the request is refused.
    """

    session: Session
    answer: Answer
    count: int = 1
    max_tokens: int = 0
    later: Sequence[Session] = ()
    opened: Callable[[Choices], None] | None = None
    progress: Callable[[PromptProgress], str] | None = None
    on_evicted: Callable[[Sequence[Message]], None] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a model by its name, None for the default model.

    `build` makes the exchange once the model is known; it raises ApiError for what the model or
    the server can't do. `slow`: building takes long, and runs in a thread. `stream_format` is that
    of the frames of a stream.
    """

    model: str | None
    build: Callable[[ModelInfo], Exchange]
    stream: bool = False
    slow: bool = False
    stream_format: StreamFormat = SERVER_SENT_EVENTS


class Exchanges:
    """Answers the requests of one API."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def respond(self, request: Request, call: Call) -> Response:
        """The response to `call`; hanging up stops the work.

        The prompt is processed before the first header is sent, so what can't be answered is an
        error response either way.
        """
        if call.stream:
            keepalive = self._context.settings.keepalive
            return EventStreamResponse(
                lambda: self.open_frames(call), _logged, keepalive, call.stream_format
            )
        return JsonResponse(await while_connected(request.receive, self._whole(call)))

    async def count_tokens(self, request: Request, call: Call) -> int:
        """How many tokens the prompt of `call` takes; hanging up stops the work."""
        return await while_connected(request.receive, self._count(call))

    async def _count(self, call: Call) -> int:
        async with self._context.models.lease(call.model) as backend:
            exchange = await self._build(call, backend.info)
            try:
                return await backend.count_session_tokens(exchange.session)
            except ContextFullError as error:
                raise to_api_error(error, backend.info.context_size) from error

    async def _whole(self, call: Call) -> JsonObject | list[JsonObject]:
        async with self._context.models.lease(call.model) as backend:
            exchange = await self._build(call, backend.info)
            async with self._open(backend, exchange) as choices:
                generations = await choices.results()
        for generation in generations:
            check_whole(generation)
        return exchange.answer.whole(generations)

    @asynccontextmanager
    async def open_frames(self, call: Call) -> AsyncGenerator[Frames]:
        """The frames of the answer; leaving the context stops the work."""
        async with self._context.models.lease(call.model) as backend:
            info = backend.info
            exchange = await self._build(call, info)
            if exchange.progress is None:
                async with self._open(backend, exchange) as choices:
                    yield _reported(exchange.answer.frames(choices), info)
                return
            stream = ProgressStream(exchange.progress)
            opening = self._open(backend, exchange, stream.listen)
            frames = _reported(stream.frames(opening, exchange.answer.frames), info)
            async with aclosing(frames):
                yield frames

    @asynccontextmanager
    async def _open(
        self, backend: Backend, exchange: Exchange, callback: EventCallback = log_warnings
    ) -> AsyncGenerator[Choices]:
        try:
            async with _open_fitting(backend, exchange, callback) as choices:
                if exchange.opened is not None:
                    exchange.opened(choices)
                yield choices
        except ContextFullError as error:
            raise to_api_error(error, backend.info.context_size) from error

    async def _build(self, call: Call, info: ModelInfo) -> Exchange:
        if call.slow:
            return await self._context.bodies.run(call.build, info)
        return call.build(info)


@asynccontextmanager
async def _open_fitting(
    backend: Backend, exchange: Exchange, callback: EventCallback
) -> AsyncGenerator[Choices]:
    """`open_choices`; where the exchange allows it, messages leave until the prompt fits."""
    session, on_evicted = exchange.session, exchange.on_evicted
    for failures in itertools.count():
        async with AsyncExitStack() as held:
            opening = open_choices(
                backend, session, exchange.count, exchange.max_tokens, callback, exchange.later
            )
            try:
                choices = await held.enter_async_context(opening)
                if on_evicted is not None:
                    await choices.begun()
            except ContextFullError as full:
                evicted = await make_room(session, backend, full, failures) if on_evicted else []
                if on_evicted is None or not evicted:
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
