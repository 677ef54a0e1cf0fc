"""A scripted upstream: real HTTP/1.1 on 127.0.0.1, answers that a test has written down."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

Piece: TypeAlias = bytes | str | float | asyncio.Event
"""A part of a body: what is sent, a pause in seconds, or an event that is waited for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. A sequence of pieces goes out piece by piece, with chunked encoding.

    `cut_after`: the connection ends after so many bytes of the body; -1 = before the head.
    `until_close`: the body has no length and ends with the connection.
    """

    body: bytes | str | Mapping[str, Any] | Sequence[Piece] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut_after: int | None = None
    until_close: bool = False

    @classmethod
    def sse(cls, events: Iterable[Any], *, done: bool = True, **more: Any) -> "Reply":
        """Server-sent events: objects, (name, object) pairs or ready lines; `[DONE]` behind."""
        pieces = [sse_event(event) for event in events]
        headers = {"content-type": "text/event-stream"}
        return cls([*pieces, *([b"data: [DONE]\n\n"] if done else [])], headers=headers, **more)

    @classmethod
    def ndjson(cls, objects: Iterable[Any], **more: Any) -> "Reply":
        """One JSON object a line."""
        pieces = [json.dumps(o).encode() + b"\n" for o in objects]
        return cls(pieces, headers={"content-type": "application/x-ndjson"}, **more)


def sse_event(event: Any) -> Piece:
    """The bytes of one event; pauses and events to wait for stay as they are."""
    if isinstance(event, bytes | float | asyncio.Event):
        return event
    if isinstance(event, str):
        return f"data: {event}\n\n"
    name, data = cast(tuple[str, Any], event) if isinstance(event, tuple) else ("", event)
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {json.dumps(data)}\n\n"


@dataclass(slots=True)
class Received:
    """One request as it came; header names in lower case. `hung_up`: the client did not wait."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Upstream:
    """Plays replies in order, or asks a function for each; one that is missing is a 404.

    `requests` are those that came, `connections` counts how many were opened.
    """

    def __init__(self, replies: Iterable[Reply] | Callable[[Received], Reply] = ()) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.url = ""
        self._answer = replies if callable(replies) else _in_order(list(replies))
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests while the connection lives; the next one's head is read meanwhile."""
        head = await reader.readuntil(b"\r\n\r\n")
        while True:
            request = await _request(head, reader)
            self.requests.append(request)
            following = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            playing = asyncio.create_task(_play(self._answer(request), writer))
            try:
                await asyncio.wait({following, playing}, return_when=asyncio.FIRST_COMPLETED)
                if not playing.done():
                    request.hung_up.set()
                    return
                if not playing.result():
                    return
                head = await following
            finally:
                playing.cancel()
                following.cancel()
                await asyncio.gather(playing, following, return_exceptions=True)


def _in_order(replies: list[Reply]) -> Callable[[Received], Reply]:
    over = Reply({"error": {"message": "the script is over"}}, status=404)
    return lambda _: replies.pop(0) if replies else over


async def _request(head: bytes, reader: asyncio.StreamReader) -> Received:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Received(method, url.path, dict(parse_qsl(url.query)), headers, body)


async def _play(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Send the reply; whether the connection is good for another."""
    pieces, whole = _pieces(reply.body)
    left = reply.cut_after
    if left is not None and left < 0:
        return False
    headers = {"content-type": "application/json"} | dict(reply.headers)
    chunked = not whole and not reply.until_close
    if chunked:
        headers["transfer-encoding"] = "chunked"
    elif not reply.until_close:
        headers["content-length"] = str(sum(len(p) for p in pieces if isinstance(p, bytes)))
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for piece in pieces:
        if isinstance(piece, asyncio.Event):
            await piece.wait()
        elif isinstance(piece, float | int):
            await asyncio.sleep(piece)
        else:
            data = piece if left is None else piece[:left]
            left = None if left is None else left - len(data)
            if data:
                writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        await writer.drain()
        if left == 0:
            return False
    writer.write(b"0\r\n\r\n" if chunked else b"")
    await writer.drain()
    return not reply.until_close


def _pieces(
    body: bytes | str | Mapping[str, Any] | Sequence[Piece],
) -> tuple[list[bytes | float | asyncio.Event], bool]:
    """The pieces, and whether they are one whole whose length is known."""
    if isinstance(body, bytes):
        return [body], True
    if isinstance(body, str):
        return [body.encode()], True
    if isinstance(body, Mapping):
        return [json.dumps(dict(body)).encode()], True
    return [p.encode() if isinstance(p, str) else p for p in body], False
