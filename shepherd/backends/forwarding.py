"""A backend in front of another one, for wrappers that change only a part of it."""

from collections.abc import Callable, Sequence

from shepherd.backends.base import Backend, CacheTier, Generation, ModelInfo, Prefilled
from shepherd.backends.embedding import Embedder
from shepherd.backends.text_model import TextModel
from shepherd.backends.upstream_state import UpstreamState
from shepherd.events import EventCallback
from shepherd.messages import Message
from shepherd.session import Session


class ForwardingBackend(Backend):
    """Passes everything on to `backend`, which its owner closes.

    `prefill_choices` prefills each choice with `prefill_session`, so that a subclass which changes
    that method changes all prompts. A subclass may override it to share the prompt.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def info(self) -> ModelInfo:
        return self._backend.info

    @property
    def alive(self) -> bool:
        return self._backend.alive

    async def reachable(self) -> bool:
        return await self._backend.reachable()

    @property
    def selector(self) -> str:
        return self._backend.selector

    def when_moved(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._backend.when_moved(listener)

    def take_warning(self) -> str:
        return self._backend.take_warning()

    @property
    def cache_tiers(self) -> tuple[CacheTier, ...]:
        return self._backend.cache_tiers

    @property
    def upstreams(self) -> Sequence[UpstreamState]:
        return self._backend.upstreams

    @property
    def waiting_requests(self) -> int:
        return self._backend.waiting_requests

    @property
    def text_model(self) -> TextModel | None:
        return self._backend.text_model

    @property
    def embedder(self) -> Embedder | None:
        return self._backend.embedder

    @property
    def count_error(self) -> float | None:
        return self._backend.count_error

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        return await self._backend.prefill_session(session, callback)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        return await self._backend.generate_from_prefilled(prefilled, callback, max_tokens)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self._backend.count_message_tokens(session, message)

    async def count_session_tokens(self, session: Session) -> int:
        return await self._backend.count_session_tokens(session)

    async def aclose(self) -> None:
        """There is nothing to close: the backend belongs to its owner."""
