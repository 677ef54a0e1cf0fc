"""Reads one streamed answer from an open connection."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from contextlib import aclosing, suppress
from typing import Any, cast

import httpx

from shepherd.backends.api.adapter import AnswerDecoder, Delta, Framing
from shepherd.backends.api.http.client import reason
from shepherd.backends.api.http.direct import StreamedResponse
from shepherd.backends.api.stream.answer import Answer
from shepherd.backends.api.stream.framing import (
    SniffedDecoder,
    StreamDecoder,
    StreamEvent,
    decoder_for,
)
from shepherd.backends.api.stream.quick_json import read, too_deep
from shepherd.errors import UnreachableError
from shepherd.messages import JsonObject


class BeforeWait(Generator[Any, Any, bytes]):
    """Gives a body's next piece each time it is awaited; `act` runs first if that takes a wait.

    All pieces of one network read are therefore taken without `act` in between. An error from `act`
    ends the body as a network error would, and is raised from it. `waited` tells whether the last
    piece took a wait.
    """

    def __init__(self, body: AsyncGenerator[bytes, None], act: Callable[[], None]) -> None:
        self._body = body
        self._act = act
        self.waited = False

    def __await__(self) -> Generator[Any, Any, bytes]:
        self._step = anext(self._body).__await__()
        self.waited = False
        return self

    def __next__(self) -> Any:
        piece = next(self._step)
        if not self.waited:
            self.waited = True
            try:
                self._act()
            except BaseException as error:  # noqa: BLE001 - the body releases its connection first
                return self._step.throw(error)
        return piece

    def send(self, value: Any, /) -> Any:
        """Go on; StopIteration holds the piece."""
        return next(self) if value is None else self._step.send(value)

    def throw(self, *error: Any) -> Any:
        """Hand an error, such as a cancel, to the body."""
        return self._step.throw(*error)


_DONE = b"[DONE]"
CUT = "the connection ended before the answer did"

GRACE = 2.0
"""Seconds for the usage and the end after a complete answer, to reuse the connection."""

MAX_HELD_BYTES = 64 * 1024
"""Larger pieces, in bytes, are decoded separately: one of them may be too large an event."""


class Reading:
    """Feeds one response to an answer, all pieces of one network read together.

    Only the first piece of a read is fed at once: most come alone, and a check takes time.

    `broken` says why it ended too early, "" if it did not. `waited` are the seconds until the
    answer began, `spoken` those since.
    """

    def __init__(self, decoder: AnswerDecoder, answer: Answer, clock: Callable[[], float]) -> None:
        self._decoder = decoder
        self._answer = answer
        self._clock = clock
        self._held: list[bytes] = []
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

    async def run(self, response: StreamedResponse, framing: Framing) -> None:
        """Read until the answer or the connection ends, or the callback returns False."""
        stream = SniffedDecoder() if framing is Framing.SSE else decoder_for(framing)
        why = CUT
        try:
            try:
                await self._follow(response, stream)
            except httpx.RequestError as error:
                why = reason(error)
            if not self._answer.ended:
                self.take([*self._events(stream), *stream.finish()])
        except UnreachableError as error:
            why = reason(error)
        if not (self._complete or self._answer.ended):
            self.broken = why

    async def _follow(self, response: StreamedResponse, stream: StreamDecoder) -> None:
        pieces = cast(AsyncGenerator[bytes, None], _body(response))

        def act() -> None:
            if not self._held:
                return
            self._tell(self._events(stream))
            if self._complete and limit.when() is None:
                limit.reschedule(asyncio.get_running_loop().time() + GRACE)

        with suppress(_AnswerEndedError, StopAsyncIteration, TimeoutError):  # the last: GRACE
            async with asyncio.timeout(None) as limit, aclosing(pieces) as body:
                following = BeforeWait(body, act)
                while True:
                    piece = await following
                    large = len(piece) > MAX_HELD_BYTES
                    if large:
                        act()
                    self._held.append(piece)
                    if large or following.waited or self._began is None:
                        act()

    def _events(self, stream: StreamDecoder) -> list[StreamEvent]:
        """The events in the pieces that were held."""
        held, self._held = self._held, []
        return stream.feed(b"".join(held))

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


def _body(response: StreamedResponse) -> AsyncIterator[bytes]:
    """The body, with as few intermediate steps as possible."""
    if not isinstance(response, httpx.Response):
        return response.aiter_bytes()
    coded = response.headers.get("content-encoding", "identity") != "identity"
    stream = response.stream
    if coded or not isinstance(stream, httpx.AsyncByteStream):
        return response.aiter_bytes()
    return aiter(stream)


def _object(text: bytes) -> JsonObject:
    """The event's object; {} for any other value."""
    try:
        value = read(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or too_deep(text, value):
        return {}
    return cast(JsonObject, value)
