"""A backend that answers with what the request names, so that each answer is its request's own."""

import asyncio
import re
from random import Random

from shepherd.backends.base import Generation, Prefilled
from shepherd.backends.script import Script
from shepherd.backends.scripted import ScriptedBackend, ScriptedPrefilled
from shepherd.events import EventCallback, FinishReason, Stats, Text
from shepherd.messages import Message
from shepherd.session import RawPrompt, Session

_ORDER = re.compile(r"mark-(\d+)x(\d+)")


def order(mark: int, pieces: int) -> str:
    """The request for `answer(mark, pieces)`."""
    return f"Repeat mark-{mark}x{pieces}."


def answer(mark: int, pieces: int) -> str:
    """The answer to `order(mark, pieces)`."""
    return f"[{mark}] " * pieces


class EchoPrefilled(ScriptedPrefilled):
    """A prompt, and the pieces of its answer."""

    def __init__(self, backend: "EchoBackend", tokens: int, mark: int, pieces: int) -> None:
        super().__init__(backend, tokens)
        self.mark = mark
        self.pieces = pieces


class EchoBackend(ScriptedBackend):
    """Answers the last `order` of a session, with pauses of random lengths.

    `active` is the number of requests that hold a prompt.
    """

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(Script(()), name)
        self._random = random

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        tokens = await self.count_session_tokens(session)
        await self._pause()
        mark, pieces = _ORDER.findall(_text(session))[-1]
        self.active += 1
        return EchoPrefilled(self, tokens, int(mark), int(pieces))

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        assert isinstance(prefilled, EchoPrefilled)
        mark, size = prefilled.mark, prefilled.prompt_tokens
        for _ in range(prefilled.pieces):
            await self._pause()
            callback(Text(answer(mark, 1)))
        message = Message.assistant(answer(mark, prefilled.pieces))
        return Generation(message, FinishReason.STOP, Stats(size, 0, prefilled.pieces))

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.005, 0.02]))


def _text(session: Session) -> str:
    prompt = session.raw_prompt
    if isinstance(prompt, RawPrompt):
        return "".join(str(part) for part in prompt.parts)
    return session.messages[-1].plain_text
