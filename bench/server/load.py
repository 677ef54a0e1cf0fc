"""Requests over connections that stay open, as cheap for this process as they can be."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Post:
    """A request that is sent again and again; it must be answered with the status 200."""

    url: str
    path: str
    body: Mapping[str, Any]

    def bytes(self) -> bytes:
        """The request as it is sent."""
        body = json.dumps(self.body).encode()
        lines = [f"POST {self.path} HTTP/1.1", f"host: {urlsplit(self.url).netloc}"]
        lines += ["content-type: application/json", f"content-length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body


@dataclass(frozen=True, slots=True)
class Answered:
    """The seconds of a request, and its answer without headers."""

    seconds: float
    body: bytes


async def answered(posts: Sequence[Post]) -> list[Answered]:
    """The answers to requests for one server, one after the other over one connection."""
    connection = await _connect(posts[0])
    answers: list[Answered] = []
    try:
        for post in posts:
            data, started = post.bytes(), time.perf_counter()
            answer = await connection.send(data)
            seconds = time.perf_counter() - started
            answers.append(Answered(seconds, answer.partition(b"\r\n\r\n")[2]))
    finally:
        connection.close()
    return answers


async def latencies(post: Post, count: int) -> list[float]:
    """The seconds of `count` requests, one after the other."""
    return [answer.seconds for answer in await answered([post] * count)]


async def rate(post: Post, clients: int, seconds: float) -> float:
    """The requests per second of `clients` at once."""
    data, end = post.bytes(), time.perf_counter() + seconds

    async def repeat() -> int:
        connection, count = await _connect(post), 0
        try:
            while time.perf_counter() < end:
                await connection.send(data)
                count += 1
        finally:
            connection.close()
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*(repeat() for _ in range(clients)))
    return sum(counts) / (time.perf_counter() - started)


async def body_of(post: Post) -> bytes:
    """The answer to one request, without its headers; a stream is still in its chunks."""
    return (await answered([post]))[0].body


async def _connect(post: Post) -> "_Connection":
    parts = urlsplit(post.url)
    loop = asyncio.get_running_loop()
    host, port = parts.hostname or "", parts.port or 0
    _, connection = await loop.create_connection(_Connection, host, port)
    return connection


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def send(self, data: bytes) -> bytes:
        """The whole answer, with its headers; raises ConnectionError for one that is not 200."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        answer = await self._answer
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(answer.decode("utf-8", "replace"))
        return answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answer is not None and _is_complete(self._received):
            answer, self._received = bytes(self._received), bytearray()
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        self._answer = None
        self._transport.close()


def _is_complete(received: bytearray) -> bool:
    head, blank, body = received.partition(b"\r\n\r\n")
    if not blank:
        return False
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length) if length else body.endswith(_END)
