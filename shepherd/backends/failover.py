"""The loop that takes one request to the next backend, until its answer has begun."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TypeVar

from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.errors import ShepherdError
from shepherd.events import Event, EventCallback, Notice, TextEvent, Topic
from shepherd.messages import Message
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
        self, failed: Backend | None, error: ShepherdError, callback: EventCallback
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
        callback: EventCallback,
        begun: Callable[[], bool] = lambda: False,
    ) -> T:
        """The result of the first backend that succeeds; an error is final once it has `begun`."""
        while True:
            backend = None
            try:
                backend = await self.backend()
                return await work(backend)
            except ShepherdError as error:
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

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self.current.count_message_tokens(session, message)

    async def count_session_tokens(self, session: Session) -> int:
        return await self.current.count_session_tokens(session)

    @abstractmethod
    def route(self, session: Session) -> Route:
        """The way of a new request."""

    def take_warning(self) -> str:
        warning, self._pending_warning = self._pending_warning, ""
        return warning

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        warning = self.take_warning()
        if warning:
            callback(Notice(warning, Topic.WARNING))
        prompt = _RoutedPrompt(session, self.route(session))
        try:
            await prompt.route.run(lambda backend: prompt.prefill(backend, callback), callback)
        except BaseException:
            prompt.route.close()
            raise
        return prompt

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, _RoutedPrompt):
            raise TypeError("this prompt was not accepted here")
        watched = _Watched(callback)

        async def generate(backend: Backend) -> Generation:
            inner = await prefilled.prefill(backend, callback)
            return await backend.generate_from_prefilled(inner, watched, max_tokens)

        generation = await prefilled.route.run(generate, callback, lambda: watched.answered)
        prefilled.finish(generation)
        return generation


class _RoutedPrompt(Prefilled):
    """The prompt in the backend that takes it now."""

    def __init__(self, session: Session, route: Route) -> None:
        self.route = route
        self._session = session
        self._backend: Backend | None = None
        self._inner: Prefilled | None = None
        self._stack = AsyncExitStack()

    async def prefill(self, backend: Backend, callback: EventCallback) -> Prefilled:
        """The prompt in `backend`; it is prefilled there unless that has happened."""
        if self._inner is not None and self._backend is backend:
            return self._inner
        await self._stack.aclose()
        self._inner = None
        inner = await backend.prefill_session(self._session, callback)
        await self._stack.enter_async_context(inner)
        self._backend, self._inner = backend, inner
        self.prompt_tokens, self.cached_tokens = inner.prompt_tokens, inner.cached_tokens
        self.logprobs = inner.logprobs
        return inner

    def finish(self, generation: Generation) -> None:
        """Take over the measures of a backend that counts while it answers."""
        if self._inner is not None:
            self.prompt_tokens = self._inner.prompt_tokens
            self.cached_tokens = self._inner.cached_tokens
        self.route.finish(generation)

    @property
    def generated(self) -> Sequence[int]:
        return () if self._inner is None else self._inner.generated

    @property
    def sampling(self) -> Sampling | None:
        return None if self._inner is None else self._inner.sampling

    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprob]:
        return () if self._inner is None else self._inner.prompt_logprobs

    @property
    def prompt_text(self) -> str:
        return "" if self._inner is None else self._inner.prompt_text

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._stack.__aexit__(exc_type, exc, traceback)
        finally:
            self.route.close()


class _Watched:
    """Passes events on, and notes whether any of them was part of an answer."""

    def __init__(self, callback: EventCallback) -> None:
        self._callback = callback
        self.answered = False

    def __call__(self, event: Event) -> bool:
        self.answered = self.answered or isinstance(event, TextEvent)
        return self._callback(event)
