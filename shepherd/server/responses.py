"""Responses: JSON, errors and server-sent events, as long as the client is connected."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from shepherd.json_text import to_json
from shepherd.server.api import error_event, error_reply, mark_stream
from shepherd.server.errors import ApiError
from shepherd.tasks import end_tasks

T = TypeVar("T")


class JsonResponse(JSONResponse):
    """A response with a body of `to_json`."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()


class ErrorResponse(Response):
    """An error in the shape of the request's API."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(status_code=error.status)
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = error_reply(scope, self._error)
        response = JsonResponse(reply.body, reply.status, reply.headers)
        await response(scope, receive, send)


Frames: TypeAlias = AsyncIterator[str]


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """How frames are sent: their media type, and the text that fills silence, "" for none."""

    media_type: str
    keepalive: str = ""


SERVER_SENT_EVENTS = StreamFormat("text/event-stream", ": keep-alive\n\n")
JSON_LINES = StreamFormat("application/x-ndjson")
JSON_ARRAY = StreamFormat("application/json")


class EventStreamResponse(Response):
    """Sends the frames of `open_frames` as long as the client is connected.

    The headers wait for the first frame, or for `keepalive` seconds. An earlier failure is an
    ordinary error response. A later failure is the last event, in the shape of the API. During
    silence a filler is sent every `keepalive` seconds, if the format has one.
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
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._open_frames = open_frames
        self._to_error = to_error
        self._silence = stream_format.keepalive
        self._keepalive = keepalive if self._silence else None
        self._started = False
        self._late_headers: Mapping[str, str] = {} if late_headers is None else late_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnectedError):
            await while_connected(receive, self._respond(scope, send))

    async def _respond(self, scope: Scope, send: Send) -> None:
        async with self._open_frames() as frames:
            async for text in self._frames_or_error(frames, scope):
                await self._write(scope, send, text)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _frames_or_error(self, frames: Frames, scope: Scope) -> Frames:
        """The frames with fillers for silence, and an error's frame once the headers are sent."""
        while True:
            upcoming = asyncio.create_task(_next(frames))
            try:
                while not (await asyncio.wait({upcoming}, timeout=self._keepalive))[0]:
                    yield self._silence
            finally:
                if not upcoming.done():
                    await end_tasks(upcoming)
            error = upcoming.exception()
            if error is not None:
                yield self._error_event(error, scope)
                return
            text = upcoming.result()
            if text is None:
                return
            yield text

    def _error_event(self, error: BaseException, scope: Scope) -> str:
        if not self._started:
            raise error
        return error_event(scope, self._to_error(error))

    async def _write(self, scope: Scope, send: Send, text: str) -> None:
        if not self._started:
            self._started = True
            self.headers.update(self._late_headers)
            mark_stream(scope)
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _next(frames: Frames) -> str | None:
    return await anext(frames, None)


class ClientDisconnectedError(Exception):
    """The client disconnected, so no response can be sent."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and cancel it if the client disconnects (ClientDisconnectedError).

    The request's body must have been read. In every case, `work` has ended afterwards.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
        raise ClientDisconnectedError
    finally:
        await end_tasks(task, watch)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
