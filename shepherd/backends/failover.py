"""Several backends as one: a request that one of them fails goes to the next."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TypeAlias, TypeVar

from msgspec import Struct, structs

from shepherd import errors, events, messages
from shepherd.backends.base import (
    Backend,
    BackendStatus,
    Generation,
    Lease,
    ModelInfo,
    Prefilled,
)
from shepherd.sampling import Sampling, TokenLogprob
from shepherd.session import Session

T = TypeVar("T")


class Route(ABC):
    """The way of one request through several backends."""

    @abstractmethod
    async def backend(self) -> Backend:
        """The backend that takes the request now; raises the error that keeps it from opening."""

    @abstractmethod
    async def move_on(
        self, failed: Backend | None, error: errors.ShepherdError, callback: events.EventCallback
    ) -> None:
        """Choose another backend; `failed` is None if it could not be opened.

        Raises `error` if it is the request's own, or if no backend is left.
        """

    @abstractmethod
    def finish(self, generation: Generation) -> None:
        """Note the result of the request."""

    @abstractmethod
    def close(self) -> None:
        """Note that the request has ended, with or without a result."""

    async def run(
        self,
        work: Callable[[Backend], Awaitable[T]],
        callback: events.EventCallback,
        begun: Callable[[], bool] = lambda: False,
    ) -> T:
        """The result of the first backend that succeeds; an error is final once it has `begun`."""
        while True:
            backend = None
            try:
                backend = await self.backend()
                return await work(backend)
            except errors.ShepherdError as error:
                if begun():
                    raise
                await self.move_on(backend, error, callback)


class FailoverBackend(Backend):
    """Several backends as one; a request moves on if its backend fails before the answer."""

    _pending_warning = ""

    @property
    @abstractmethod
    def current(self) -> Backend:
        """One that answers now; it counts tokens for all."""

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        return await self.current.count_message_tokens(session, message)

    async def count_session_tokens(self, session: Session) -> int:
        return await self.current.count_session_tokens(session)

    @abstractmethod
    def route(self, session: Session) -> Route:
        """The way of a new request."""

    def take_warning(self) -> str:
        warning, self._pending_warning = self._pending_warning, ""
        return warning

    def note_lease(self, lease: Lease) -> None:
        self.current.note_lease(lease)

    async def prefill_session(self, session: Session, callback: events.EventCallback) -> Prefilled:
        """The prompt in the first backend that takes it; see `Backend.prefill_session`."""
        warning = self.take_warning()
        if warning:
            callback(events.Notice(warning, events.Topic.WARNING))
        prompt = _RoutedPrompt(session, self.route(session))
        try:
            await prompt.route.run(lambda backend: prompt.prefill(backend, callback), callback)
        except BaseException:
            prompt.route.close()
            raise
        return prompt

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, _RoutedPrompt):
            raise TypeError("this prompt was not accepted here")
        has_answered = False

        def note_answer(event: events.Event) -> bool:
            nonlocal has_answered
            has_answered = has_answered or isinstance(event, events.TextEvent)
            return callback(event)

        async def generate(backend: Backend) -> Generation:
            inner = await prefilled.prefill(backend, callback)
            generation = await backend.generate_from_prefilled(inner, note_answer, max_tokens)
            if generation.broken and not prefilled.wants_pieces:  # nobody has seen half of it
                raise errors.UnreachableError(generation.broken)
            return generation

        # Another backend can't go on with half an answer that somebody reads.
        generation = await prefilled.route.run(
            generate, callback, lambda: has_answered and prefilled.wants_pieces
        )
        prefilled.finish(generation)
        return generation


class _RoutedPrompt(Prefilled):
    """The prompt in the backend that takes it now."""

    def __init__(self, session: Session, route: Route) -> None:
        self.route = route
        self._session = session
        self._backend: Backend | None = None
        self._inner = Prefilled()  # an empty one, until a backend has taken the prompt
        self._inner_exit = AsyncExitStack()
        """Releases the inner prompt."""

    async def prefill(self, backend: Backend, callback: events.EventCallback) -> Prefilled:
        """The prompt in `backend`; it is prefilled there unless that has happened."""
        if self._backend is backend:
            return self._inner
        await self._inner_exit.aclose()
        self._backend, self._inner = None, Prefilled()  # if the next line fails, there is no other
        inner = await backend.prefill_session(self._session, callback)
        await self._inner_exit.enter_async_context(inner)
        self._backend, self._inner = backend, inner
        self.prompt_tokens, self.cached_tokens = inner.prompt_tokens, inner.cached_tokens
        self.logprobs = inner.logprobs
        return inner

    def finish(self, generation: Generation) -> None:
        """Take over the measures of a backend that counts while it answers."""
        self.prompt_tokens = self._inner.prompt_tokens
        self.cached_tokens = self._inner.cached_tokens
        self.route.finish(generation)

    @property
    def generated(self) -> Sequence[int]:
        return self._inner.generated

    @property
    def sampling(self) -> Sampling | None:
        return self._inner.sampling

    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprob]:
        return self._inner.prompt_logprobs

    @property
    def prompt_text(self) -> str:
        return self._inner.prompt_text

    @property
    def unenforced(self) -> Sequence[str]:
        return self._inner.unenforced

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._inner_exit.__aexit__(exc_type, exc, traceback)
        finally:
            self.route.close()


MovesOn: TypeAlias = Callable[[errors.ShepherdError], bool]
"""Whether the next backend is tried after an error."""


def _is_unreachable(error: errors.ShepherdError) -> bool:
    return isinstance(error, errors.UnreachableError)


class Candidate(Struct, frozen=True):
    """A backend that may be opened; `label` is its name for the user."""

    label: str
    open: Callable[[], Awaitable[Backend]]


class FallbackBackend(FailoverBackend, Route):
    """Answers with the first of several backends that can be reached, and stays with it.

    If it can't be reached before its answer begins, the next backend takes this request and all
    later ones. A SYSTEM warning reports the change. Other errors are raised unchanged.
    """

    def __init__(
        self,
        chosen: Candidate,
        backend: Backend,
        untried: list[Candidate],
        warning: str = "",
        moves_on: MovesOn = _is_unreachable,
    ) -> None:
        """`backend` is that of the `chosen` candidate; `warning` is sent for the next request.

        `moves_on` tells the errors for which one of the `untried` candidates is tried.
        """
        self._moves_on = moves_on
        self._untried = untried
        self._current = backend
        self._label = chosen.label
        self._left_backends: list[Backend] = []
        self._listeners: list[Callable[[], None]] = []
        self._pending_warning = warning
        self._moving = asyncio.Lock()

    @classmethod
    async def open(
        cls, candidates: Sequence[Candidate], moves_on: MovesOn = _is_unreachable
    ) -> "FallbackBackend":
        """Open the first candidate that can be reached.

        Raises the first one's error if none can be reached, and errors that are not for
        `moves_on`.
        """
        if not candidates:
            raise errors.UnreachableError("There is no provider to ask.")
        chosen, *untried = candidates
        try:
            return cls(chosen, await chosen.open(), untried, moves_on=moves_on)
        except errors.ShepherdError as error:
            if not moves_on(error):
                raise
            opened, skipped = await _open_next(untried)
            if opened is None:
                raise  # the error of the provider that the user has chosen
            candidate, backend = opened
            return cls(candidate, backend, untried, _warning(error, skipped, candidate), moves_on)

    @property
    def info(self) -> ModelInfo:
        return structs.replace(self._current.info, selector=self._label)

    @property
    def alive(self) -> bool:
        return self._current.alive

    async def reachable(self) -> bool:
        """As the current one; while other candidates remain, True."""
        return self.alive and (bool(self._untried) or await self._current.reachable())

    def when_moved(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    @property
    def status(self) -> BackendStatus:
        return self._current.status

    def route(self, session: Session) -> Route:
        del session  # all requests go to the current backend
        return self

    async def backend(self) -> Backend:
        return self._current

    def finish(self, generation: Generation) -> None:
        """No counts are kept."""

    def close(self) -> None:
        """The backend stays for the next request."""

    async def aclose(self) -> None:
        for backend in [*self._left_backends, self._current]:
            await backend.aclose()

    @property
    def current(self) -> Backend:
        return self._current

    async def move_on(
        self, failed: Backend | None, error: errors.ShepherdError, callback: events.EventCallback
    ) -> None:
        """Replace the current backend if it is still `failed`; raises `error` if none is left."""
        if failed is None or not self._moves_on(error):
            raise error
        async with self._moving:
            if self._current is not failed:  # another request was faster
                return
            opened, skipped = await _open_next(self._untried)
            if opened is None:
                if skipped:
                    callback(events.Notice(" ".join(skipped), events.Topic.WARNING))
                raise error
            self._left_backends.append(failed)  # other requests may still use it
            candidate, self._current = opened
            self._label = candidate.label
            for listener in [*self._listeners]:  # a copy: a listener may remove itself
                listener()
            callback(events.Notice(_warning(error, skipped, candidate), events.Topic.WARNING))


async def _open_next(
    untried: list[Candidate],
) -> tuple[tuple[Candidate, Backend] | None, list[str]]:
    """The first of `untried` that opens, and sentences why the ones before it did not.

    All of them are removed from `untried`.
    """
    skipped: list[str] = []
    while untried:
        candidate = untried.pop(0)
        try:
            return (candidate, await candidate.open()), skipped
        except errors.UnreachableError:
            skipped.append(f"{candidate.label} can't be reached either.")
        except errors.ShepherdError as error:  # its settings are wrong
            skipped.append(f"{candidate.label} was skipped: {_sentence(error)}")
    return None, skipped


def _warning(error: errors.ShepherdError, skipped: Sequence[str], candidate: Candidate) -> str:
    """What the user reads: why the backend before failed, which were skipped, and what is next."""
    return " ".join([_sentence(error), *skipped, f"Going on with {candidate.label}."])


def _sentence(error: errors.ShepherdError) -> str:
    """The error's message, with a full stop."""
    text = str(error)
    return text if text.endswith((".", "?", "!")) else f"{text}."
