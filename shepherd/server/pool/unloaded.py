"""The description of a model that is not loaded."""

from typing import NoReturn

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.errors import ModelLoadError
from shepherd.events import EventCallback
from shepherd.messages import Message
from shepherd.session import Session


class UnloadedBackend(Backend):
    """Describes a model that the next request loads; it can't answer itself."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self._refuse()

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self._refuse()

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        self._refuse()

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _refuse(self) -> NoReturn:
        raise ModelLoadError(f"The model {self._info.id} is not loaded.")
