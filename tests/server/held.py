"""A backend that waits where a test wants it to."""

import asyncio
from types import TracebackType

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import EventCallback, FinishReason, Stats, Text
from shepherd.messages import Message
from shepherd.session import Session


class HeldPrefilled(Prefilled):
    """Counts itself in and out of its backend."""

    prompt_tokens = 1
    cached_tokens = 0

    def __init__(self, backend: "HeldBackend") -> None:
        self._backend = backend
        backend.holding += 1

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._backend.holding -= 1


class HeldBackend(Backend):
    """A backend with one slot that works until it is let go, in prefill or in generation.

    `working` is the number of requests at work, `queued` those that wait for it, `holding` those
    that were prefilled, `begun` those that ever came to work, `stopped` those that were cancelled
    at it.
    """

    def __init__(self, *, hold_prefill: bool = False, hold_generation: bool = False) -> None:
        self.hold_prefill = hold_prefill
        self.hold_generation = hold_generation
        self.queued = self.working = self.holding = self.begun = self.stopped = 0
        self.failed = self.closed = False
        self.go = asyncio.Event()
        self._slot = asyncio.Semaphore(1)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("held", "held", 2048)

    @property
    def alive(self) -> bool:
        return not self.failed

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        await self._work(held=self.hold_prefill)
        return HeldPrefilled(self)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        callback(Text("done"))
        await self._work(held=self.hold_generation)
        stats = Stats(prompt_tokens=1, completion_tokens=1)
        return Generation(Message.assistant("done"), FinishReason.STOP, stats)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return 1

    async def aclose(self) -> None:
        self.closed = True

    async def _work(self, *, held: bool) -> None:
        self.queued += 1
        try:
            await self._slot.acquire()
        finally:
            self.queued -= 1
        self.working += 1
        self.begun += 1
        try:
            if held:
                await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.working -= 1
            self._slot.release()


class RaisingBackend(ScriptedBackend):
    """Fails in prefill with its error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(parse_script("text: never"))
        self.error = error

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        raise self.error


class RecordingBackend(ScriptedBackend):
    """Plays a script and keeps the sessions of its requests."""

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.sessions: list[Session] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.sessions.append(session)
        return await super().prefill_session(session, callback)
