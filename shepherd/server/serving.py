"""One request from its model to its answer, in the order in which a route does it.

A route gets its body and this object from FastAPI. It leases the model, makes the exchange of the
request for that model, and has it answered. The model must stay until the answer has ended, which
outlives the route. It stands on a stack for that, which is closed before the last byte leaves:
a client that has the whole answer may rely on its tokens being counted. FastAPI closes the stack of
a request that fails before.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence, Sized
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from fastapi import Depends
from msgspec import Struct, field, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from shepherd import errors, events
from shepherd.backends.base import Backend, Generation, ModelInfo, Observer
from shepherd.messages import JsonObject, Message
from shepherd.server import responses, settings
from shepherd.server.access.key import KeyScope
from shepherd.server.access.meter import Budget, Work
from shepherd.server.agent.agent import AgentTurn
from shepherd.server.agent.tasks import Accounts
from shepherd.server.errors import ApiError, log_failure, to_api_error, unsupported
from shepherd.server.generation import (
    NO_TOKENS,
    Answering,
    ChoicePiece,
    Choices,
    ProgressStream,
    PromptProgress,
    check_whole,
    log_warnings,
    open_choices,
)
from shepherd.server.record import (
    LEFT_OUT_HEADER,
    UNENFORCED_HEADER,
    RequestOptions,
    current_record,
    key_has,
    options_of,
)
from shepherd.session import Session
from shepherd.turn.fitting import make_room

P = ParamSpec("P")
T = TypeVar("T")


class Answer(ABC):
    """One answer in the shape of an API: a whole body, or the frames of a stream (see `frame`).

    Both are made of the same parts. `choices` are those that are answered; they are there when the
    first part is made.
    """

    choices: Choices

    def attach(self, choices: Choices) -> None:
        """Take the choices, for what a generation alone does not tell."""
        self.choices = choices

    @abstractmethod
    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The body of the response, one generation for each choice."""

    async def frames(self, choices: Choices) -> responses.Frames:
        """Yields the parts in their order; an answer that broke off raises ApiError."""
        begun: set[int] = set()
        async for piece in choices:
            # a piece without an event is the end of its choice
            ended = await choices.result(piece.choice) if piece.event is None else None
            if ended is not None:
                check_whole(ended)
            if piece.choice not in begun:
                begun.add(piece.choice)
                for text in self.begin(piece.choice):
                    yield text
            for text in self.add(piece) if ended is None else self.end(piece.choice, ended):
                yield text
        for text in self.close(await choices.results()):
            yield text

    def begin(self, _choice: int) -> Iterator[str]:
        """What precedes the first part of a choice."""
        yield from ()

    @abstractmethod
    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """More text of a choice."""

    @abstractmethod
    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """What follows the text of a choice: its calls, why it ended, its measures."""

    def close(self, _generations: Sequence[Generation]) -> Iterator[str]:
        """What follows all choices."""
        yield from ()


class Exchange(Struct, frozen=True):
    """A request as a session to continue, and the shape of its answer.

    `count` answers are generated, each of at most `max_tokens` tokens; 0 means as many as fit, and
    `NO_TOKENS` none. The answers to the prompts of `later` follow, one for each. `progress` makes
    the frame of a stream that tells how far the prompt is read; the headers then do not wait for
    all of it. If the conversation does not fit, its oldest turns leave, and `on_evicted` gets their
    messages; without it the request is refused. `tools_allowed` is false if the request wants no
    call at all. `count_field` is the name of the field of `count`. `limited` adds to
    the observer of the work, to end answers early. `left_out` are the types of tools in the request
    that only their vendor runs. A client may save the conversation from `slot`.
    """

    session: Session
    answer: Answer
    count: int = 1
    max_tokens: int = 0
    later: Sequence[Session] = ()
    progress: Callable[[PromptProgress], str] | None = None
    on_evicted: Callable[[Sequence[Message]], None] | None = None
    tools_allowed: bool = True
    count_field: str = "n"
    limited: Callable[[Observer], Observer] | None = None
    left_out: Sequence[str] = ()
    slot: int | None = None

    @property
    def is_turn(self) -> bool:
        """Whether an agent can answer: a conversation, whose answer is a new message."""
        session = self.session
        plain = session.raw_prompt is None and not session.continues
        return plain and self.tools_allowed and self.max_tokens != NO_TOKENS


class Serving(Struct, frozen=True, eq=False):
    """The work for one request; `receive` tells when its client hangs up, which stops the work.

    Without `receive` nobody waits, as for a response in the background.
    """

    context: settings.ServerContext
    options: RequestOptions
    receive: Receive | None = None
    _lease_stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def lease(self, name: str | None, keep_alive: float | None = None) -> Backend:
        """The model of a name, in use until the answer has ended.

        None is the default model. `keep_alive` is as in `Models.lease`. Raises ApiError for an
        unknown name, and the errors from loading it.
        """
        leasing = self.context.monitor.leased(self.context.models, name, keep_alive)
        # loading a model takes long, and nobody may wait for it any more
        opening = self._lease_stack.enter_async_context(leasing)
        return await responses.while_connected(self.receive, opening)

    async def translate(
        self, parts: Sized, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of `work`, which runs in a thread if there are many parts of a request."""
        return await self.context.bodies.translate(parts, work, *args, **kwargs)

    async def respond(
        self, model: Backend, exchange: Exchange, stream: responses.StreamFormat | None = None
    ) -> Response:
        """The response with the whole answer, or a stream of it in a format.

        The prompt is processed before the first header is sent, so what can't be answered is an
        error response either way.
        """
        self.options.note_names(LEFT_OUT_HEADER, exchange.left_out)
        headers = self.options.response_headers
        if stream is None:
            body = await responses.while_connected(self.receive, self.whole(model, exchange))
            return responses.JsonResponse(body, headers=headers)
        keepalive = self.context.settings.keepalive
        return responses.EventStreamResponse(
            lambda: self.frames(model, exchange), _logged, keepalive, stream, headers
        )

    async def whole(self, model: Backend, exchange: Exchange) -> JsonObject | list[JsonObject]:
        """The whole answer; one that broke off raises ApiError."""
        async with self._lease_stack, self._opened(model, exchange, log_warnings) as choices:
            generations = await choices.results()
        for generation in generations:
            check_whole(generation)
        return exchange.answer.whole(generations)

    @asynccontextmanager
    async def frames(self, model: Backend, exchange: Exchange) -> AsyncGenerator[responses.Frames]:
        """The frames of the answer; leaving the context ends the work, and the lease."""
        async with self._lease_stack:
            if exchange.progress is None:
                async with self._opened(model, exchange, log_warnings) as choices:
                    choices.start()
                    yield _reported(exchange.answer.frames(choices), model.info)
                return
            progress = ProgressStream(exchange.progress)
            opening = self._opened(model, exchange, progress.listen)
            frames = _reported(progress.frames(opening, exchange.answer.frames), model.info)
            async with aclosing(frames):
                yield frames

    async def count_tokens(self, model: Backend, exchange: Exchange) -> int:
        """How many tokens the prompt takes."""
        budget = self.context.meter.budget()
        # an agent's prompt has its system message and tools too
        _, exchange = self._observed(model.info, exchange, budget)
        await self.context.meter.check_tokens()
        counting = model.count_session_tokens(exchange.session)
        try:
            return await responses.while_connected(self.receive, counting)
        except errors.ContextFullError as error:
            raise to_api_error(error, model.info.context_size) from error

    async def aclose(self) -> None:
        """Give back the model, unless that was done before."""
        await self._lease_stack.aclose()

    @asynccontextmanager
    async def _opened(
        self, model: Backend, exchange: Exchange, callback: events.EventCallback
    ) -> AsyncGenerator[Choices]:
        """The generations of the answer, whose tokens are held before and counted after."""
        budget = self.context.meter.budget()
        observer, exchange = self._observed(model.info, exchange, budget)
        record = current_record()

        def listen(event: events.Event) -> bool:
            progress = event if isinstance(event, events.PrefillProgress) else None
            if record is not None:
                record.waits = progress.waits if progress else ""
            if progress:
                self.options.note_place(progress)
            return callback(event)

        work = Work(
            [exchange.session, *exchange.later],
            exchange.count,
            exchange.max_tokens,
            shortens=exchange.on_evicted is not None,
        )
        try:
            async with budget.measured(model, work):
                # here `work.max_tokens` is what the key allows
                answering = Answering(model, work.max_tokens, observer)
                try:
                    async with _choices(answering, exchange, listen) as choices:
                        exchange.answer.attach(choices)
                        self.options.note_names(UNENFORCED_HEADER, choices.handle(0).unenforced)
                        try:
                            yield choices
                        finally:
                            work.stats = choices.stats()
                            if exchange.slot is not None:
                                self.context.slots.note(exchange.slot, choices.handle(0).tokens)
                finally:
                    self.context.monitor.note(work.total())
        except errors.ContextFullError as error:
            raise to_api_error(error, model.info.context_size) from error

    def _observed(
        self, model: ModelInfo, exchange: Exchange, budget: Budget
    ) -> tuple[Observer, Exchange]:
        """Who observes the answer, or makes it: the agent; raises ApiError."""
        context, exchange = self.context, self._with_truncation(exchange)
        agent, watch = context.agent, context.monitor.watch()
        may_use_tools = self.options.uses_tools and key_has(KeyScope.TOOLS)
        if agent is None or not (exchange.is_turn and may_use_tools):
            return (watch if exchange.limited is None else exchange.limited(watch)), exchange
        if exchange.count > 1:
            message = "With --use-tools the server gives one answer to a request."
            raise unsupported(exchange.count_field, message)
        on_evicted = exchange.on_evicted
        accounts = Accounts(budget, watch, context.meter, context.monitor, context.models.lease)
        owner = self.options.owner
        turn = AgentTurn(agent, model, exchange.session, accounts, owner, on_evicted)
        if on_evicted is not None:
            on_evicted = turn.report_evicted
        return turn, structs.replace(exchange, session=turn.session, on_evicted=on_evicted)

    def _with_truncation(self, exchange: Exchange) -> Exchange:
        """The exchange, whose conversation may be shortened if the request says so."""
        options, on_evicted = self.options, exchange.on_evicted
        # the header of the request says so, or a field of its body
        if not options.truncates and on_evicted is None:
            return exchange

        def note(messages: Sequence[Message]) -> None:
            options.note_evicted(messages)
            if on_evicted is not None:
                on_evicted(messages)

        return structs.replace(exchange, on_evicted=note)


def serves(context: settings.ServerContext) -> Any:
    """The dependency of routes that need a `Serving`."""

    async def serving(request: Request) -> AsyncGenerator[Serving]:
        """The work for a request, which ends after its response, or when the route fails."""
        work = Serving(context, options_of(request), request.receive)
        try:
            yield work
        finally:
            await work.aclose()

    return Depends(serving)


@asynccontextmanager
async def _choices(
    answering: Answering, exchange: Exchange, callback: events.EventCallback
) -> AsyncGenerator[Choices]:
    """`open_choices`; where the exchange allows it, messages leave until the prompt fits."""
    session, on_evicted = exchange.session, exchange.on_evicted
    for failures in itertools.count():  # each attempt has a shorter prompt
        async with AsyncExitStack() as held:
            opening = open_choices(answering, session, exchange.count, callback, exchange.later)
            try:
                choices = await held.enter_async_context(opening)
                if on_evicted is not None:  # the context may be full only while generating
                    await choices.begun()
            except errors.ContextFullError as full:
                if on_evicted is None:  # the conversation must be answered whole
                    raise
                evicted = await make_room(session, answering.backend, full, failures)
                if not evicted:  # what is left can't be shortened
                    raise
                on_evicted(evicted)
                continue
            yield choices
            return


async def _reported(frames: responses.Frames, info: ModelInfo) -> AsyncGenerator[str]:
    """The frames; a context that filled up is reported with the model's context size."""
    try:
        async for text in frames:
            yield text
    except errors.ContextFullError as error:
        raise to_api_error(error, info.context_size) from error


def _logged(error: BaseException) -> ApiError:
    """The error that ends a stream, which the log has too."""
    reported = to_api_error(error)
    log_failure(error, reported)
    return reported
