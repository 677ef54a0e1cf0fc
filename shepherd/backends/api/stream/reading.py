"""Reads one streamed answer from an open connection."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

import httpx

from shepherd.backends.api.adapter import AnswerDecoder, Delta, Framing
from shepherd.backends.api.http.client import reason
from shepherd.backends.api.stream.answer import Answer
from shepherd.backends.api.stream.framing import (
    StreamDecoder,
    StreamEvent,
    decoder_for,
)
from shepherd.errors import UnreachableError
from shepherd.json_text import read_json, too_deep
from shepherd.messages import JsonObject

_DONE = b"[DONE]"
CUT = "the connection ended before the answer did"

GRACE = 2.0
"""Seconds for the usage and the end after a complete answer, to reuse the connection."""


class Reading:
    """Feeds one response to an answer.

    `broken` says why it ended too early, "" if it did not. `waited` are the seconds until the
    answer began, `spoken` those since.
    """

    def __init__(self, decoder: AnswerDecoder, answer: Answer, clock: Callable[[], float]) -> None:
        self._decoder = decoder
        self._answer = answer
        self._clock = clock
        self._done = False
        self._start = clock()
        self._began: float | None = None
        self.broken = ""

    @property
    def waited(self) -> float:
        return (self._clock() if self._began is None else self._began) - self._start

    @property
    def spoken(self) -> float:
        return 0.0 if self._began is None else self._clock() - self._began

    async def run(self, response: httpx.Response, framing: Framing) -> None:
        """Read until the answer or the connection ends, or the callback returns False."""
        stream = decoder_for(framing)
        why = CUT
        try:
            try:
                await self._follow(response, stream)
            except httpx.RequestError as error:
                why = reason(error)
            if not self._answer.ended:
                self.take(stream.finish())
        except UnreachableError as error:
            why = reason(error)
        if not (self._complete or self._answer.ended):
            self.broken = why

    async def _follow(self, response: httpx.Response, stream: StreamDecoder) -> None:
        with suppress(_AnswerEndedError, TimeoutError):  # the latter: GRACE is over
            async with asyncio.timeout(None) as limit:
                async for piece in response.aiter_bytes():
                    self._tell(stream.feed(piece))
                    if self._complete and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + GRACE)

    @property
    def _complete(self) -> bool:
        return self._done or self._decoder.complete

    def take(self, events: Iterable[StreamEvent]) -> None:
        """Feed these events to the answer; events after the end are ignored."""
        with suppress(_AnswerEndedError):
            self._tell(events)

    def _tell(self, events: Iterable[StreamEvent]) -> None:
        """Send these events to the answer; raises _AnswerEndedError if it accepts no more."""
        deltas: list[Delta] = []
        for name, data, _ in events:
            text = data.strip()
            self._done = self._done or text == _DONE
            if self._done:
                break
            deltas += self._decoder.feed(name, _object(text))
        if deltas:
            self._answer.take(deltas)
            if self._began is None and self._answer.started:
                self._began = self._clock()
        if self._answer.ended:
            raise _AnswerEndedError


class _AnswerEndedError(Exception):
    """The rest of the answer is not needed."""


def _object(text: bytes) -> JsonObject:
    """The event's object; {} for any other value."""
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or too_deep(text, value):
        return {}
    return cast(JsonObject, value)
