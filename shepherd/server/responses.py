"""Responses: JSON, errors and server-sent events, as long as the client is connected."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from shepherd.json_text import to_json
from shepherd.server.errors import ApiError
from shepherd.server.record import record_of
from shepherd.tasks import end_tasks

T = TypeVar("T")


class JsonResponse(JSONResponse):
    """A response with a body of `to_json`."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()


class ErrorResponse(Response):
    """An error in the shape of the request's API.

    It takes the traceback away, because a frame of that may hold this response: the cycle would
    keep the whole request until the next collection.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(status_code=error.status)
        self._error = error.with_traceback(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = record_of(scope).error_reply(self._error)
        response = JsonResponse(reply.body, reply.status, reply.headers)
        await response(scope, receive, send)


Frames: TypeAlias = AsyncIterator[str]


class StreamFormat(Struct, frozen=True):
    """How frames are sent: their media type, and the text that fills silence, "" for none.

    Where clients of the API skip `comments`, these tell the place of a request that waits.
    """

    media_type: str
    keepalive: str = ""
    comments: bool = False


SERVER_SENT_EVENTS = StreamFormat("text/event-stream", ": keep-alive\n\n", comments=True)
PLACE_SECONDS = 2.0
"""The seconds after which a stream tells the place at which its request waits."""

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {SERVER_SENT_EVENTS.media_type: {"schema": {"type": "string"}}}}
}
"""What the description of an endpoint says of events."""

JSON_LINES = StreamFormat("application/x-ndjson")
JSON_ARRAY = StreamFormat("application/json")


class EventStreamResponse(Response):
    """Sends the frames of `open_frames` as long as the client is connected.

    The headers wait for the first frame, or for `keepalive` seconds. A request that waits for
    others gets them earlier, with comments that tell its place, if the format has comments. An
    earlier failure is an ordinary error response. A later failure is the last event, in the shape
    of the API. During silence a filler is sent every `keepalive` seconds, if the format has one.
    """

    charset = "utf-8"

    def __init__(
        self,
        open_frames: Callable[[], AbstractAsyncContextManager[Frames]],
        to_error: Callable[[BaseException], ApiError],
        keepalive: float,
        stream_format: StreamFormat = SERVER_SENT_EVENTS,
        late_headers: Mapping[str, str] | None = None,
    ) -> None:
        """`late_headers` may get entries until the first frame is sent."""
        self.media_type = stream_format.media_type
        # `X-Accel-Buffering` keeps nginx from holding frames back
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]  # Starlette's, of an empty body
        self._open_frames = open_frames
        self._to_error = to_error
        self._filler, self._has_comments = stream_format.keepalive, stream_format.comments
        self._filler_seconds = keepalive if self._filler else None
        self._last_place = ""
        self._has_begun = False
        self._late_headers: Mapping[str, str] = {} if late_headers is None else late_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnectedError):
            await while_connected(receive, self._respond(scope, send))

    async def _respond(self, scope: Scope, send: Send) -> None:
        """Send all frames; the last ones only after `open_frames` was left, which ends the work."""
        last = ""
        async with AsyncExitStack() as held:
            try:
                frames = await self._opened(held, scope, send)
            except Exception as error:
                if not self._has_begun:  # an error response can still be sent
                    raise
                text = record_of(scope).error_event(self._to_error(error))
                await self._write(scope, send, text, more=False)
                return
            pump = _Pump(frames)
            try:
                while not pump.ended:
                    text = await self._next(pump, scope)
                    if pump.ended:
                        last = text
                    else:
                        await self._write(scope, send, text)
            finally:
                await pump.aclose()
        await self._write(scope, send, last, more=False)

    async def _opened(self, held: AsyncExitStack, scope: Scope, send: Send) -> Frames:
        """The frames; while the prompt waits for others, comments tell the client its place."""
        opening = asyncio.create_task(held.enter_async_context(self._open_frames()))
        try:
            while not opening.done():
                await asyncio.wait({opening}, timeout=PLACE_SECONDS)
                comment = self._place_comment(scope)
                if comment and not opening.done():
                    await self._write(scope, send, comment)
        finally:
            await end_tasks(opening)  # if the client has left; its error is raised below
        return await opening

    async def _next(self, pump: "_Pump", scope: Scope) -> str:
        """The next frames, a filler for silence, or an error's frame once the headers are sent."""
        try:
            frames = await pump.next(self._filler_seconds)
        except Exception as error:
            if not self._has_begun:  # an error response can still be sent
                raise
            return record_of(scope).error_event(self._to_error(error))
        return (self._place_comment(scope) or self._filler) if frames is None else frames

    def _place_comment(self, scope: Scope) -> str:
        """A comment with the place at which the prompt waits; after the wait once a plain one."""
        before, self._last_place = self._last_place, record_of(scope).waits
        place = self._last_place or (before and "keep-alive")
        return f": {place}\n\n" if place and self._has_comments else ""

    async def _write(self, scope: Scope, send: Send, text: str, *, more: bool = True) -> None:
        """Send a part of the body, before the first one the headers."""
        if not self._has_begun:
            self._has_begun = True
            self.headers.update(self._late_headers)
            record_of(scope).streams = True
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
        await send({"type": "http.response.body", "body": text.encode(), "more_body": more})


_AT_ONCE = 0.0
"""A time of the event loop that has passed."""

MAX_AHEAD = 64 * 1024
"""Characters of frames that are held for a slow client before no more are made."""


class _Pump:
    """Makes frames in a task of its own; all that are there are sent together."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._waiting_frames: list[str] = []
        self._waiting_characters = 0
        self._news = asyncio.Event()  # frames, or the end
        self._has_room = asyncio.Event()
        self._task = asyncio.create_task(self._make_frames())
        self._task.add_done_callback(lambda _: self._news.set())
        self.ended = False
        """Whether all frames, or the error after them, were taken."""

    async def next(self, seconds: float | None) -> str | None:
        """The next frames, "" at the end without any; None if there are none for some seconds.

        Raises the error that ends them.
        """
        if not self._waiting_frames and not self._task.done():
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None
        frames, self._waiting_frames, self._waiting_characters = self._waiting_frames, [], 0
        self._has_room.set()
        failed = self._task.done() and self._task.exception() is not None
        # the frames before an error are sent first; the next call then raises it
        self.ended = self._task.done() and not (failed and frames)
        if self.ended:
            self._task.result()  # raises the error
        return "".join(frames)

    async def aclose(self) -> None:
        """End the task."""
        await end_tasks(self._task)

    async def _make_frames(self) -> None:
        """The task: makes frames to their end, and waits while a slow client has too many."""
        async for text in self._frames:
            self._waiting_frames.append(text)
            self._waiting_characters += len(text)
            self._news.set()
            if self._waiting_characters > MAX_AHEAD:
                self._has_room.clear()
                await self._has_room.wait()


class ClientDisconnectedError(Exception):
    """The client disconnected, so no response can be sent."""


async def while_connected(receive: Receive | None, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and cancel it if the client disconnects (ClientDisconnectedError).

    The request's body must have been read. In every case, `work` has ended afterwards. Without
    `receive` there is no client that waits.
    """
    if receive is None:
        return await work
    # a time limit that ends at the hang-up: it knows if only that has cancelled this task
    limit = asyncio.timeout(None)
    watch = asyncio.create_task(_hung_up(receive))

    has_ended = False

    def end_work(_watch: asyncio.Task[None]) -> None:
        if not has_ended:  # it can't be taken back any more if the client left at the same moment
            limit.reschedule(_AT_ONCE)

    try:
        async with limit:
            watch.add_done_callback(end_work)
            try:
                return await work
            finally:
                has_ended = True
                watch.cancel()
    except TimeoutError:
        if limit.expired():
            raise ClientDisconnectedError from None
        raise  # an error of `work` itself


async def _hung_up(receive: Receive) -> None:
    """Wait until the client has left."""
    with suppress(OSError):  # a connection that fails has ended too
        while (await receive())["type"] != "http.disconnect":
            pass
