"""A type of providers whose model repeats what it is told."""

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.config.provider import Provider
from shepherd.events import EventCallback, FinishReason, Stats, Stop, Text
from shepherd.messages import Message
from shepherd.session import Session


class EchoPrefilled(Prefilled):
    """A request whose answer is known."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.prompt_tokens = len(text.split())
        self.cached_tokens = 0


class EchoBackend(Backend):
    """Repeats the last message."""

    def __init__(self, provider: Provider, key: str) -> None:
        self._model = provider.model or "echo"
        self._greeting = f"{key}: " if key else ""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self._model, "echo", context_size=8192)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        return EchoPrefilled(self._greeting + session.messages[-1].content)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        assert isinstance(prefilled, EchoPrefilled)
        stats = Stats(prefilled.prompt_tokens, completion_tokens=prefilled.prompt_tokens)
        goes_on = callback(Text(prefilled.text))
        reason = FinishReason.STOP if goes_on else FinishReason.CANCELLED
        if goes_on:
            callback(stats)
            callback(Stop(reason))
        return Generation(Message.assistant(prefilled.text), reason, stats)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return len(message.content.split())

    async def aclose(self) -> None:
        """Nothing to close."""


async def open_echo(provider: Provider, key: str) -> Backend:
    """The backend of a provider of the type `echo`."""
    return EchoBackend(provider, key)
