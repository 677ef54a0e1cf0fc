"""Connections are kept for later requests, and those that can't be used again are closed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

import httpcore
import httpx
import pytest

from shepherd.backends.api.http.client import new_http
from shepherd.backends.api.http.endpoint import Endpoint
from shepherd.backends.api.http.network import Connection, Inbox
from tests.patience import PATIENCE, POLL

MAX_IDLE = 32
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@dataclass
class Server:
    """Answers each request; `accepted` counts connections, `open` those that are open."""

    port: int = 0
    accepted: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await self.go.wait()
                writer.write(ANSWER)
        self.writers.discard(writer)
        writer.close()

    async def until_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        async with asyncio.timeout(PATIENCE):
            while len(self.writers) != count:
                await asyncio.sleep(POLL)


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Server, httpx.AsyncClient]]:
    """A server that answers at once, and a client of it."""
    server = Server()
    server.go.set()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{server.port}"
    async with listening, new_http(Endpoint(url)) as http:
        http.base_url = httpx.URL(url)
        yield server, http
        await http.aclose()
        await server.until_open(0)


@pytest.mark.parametrize("at_once", [1, MAX_IDLE, MAX_IDLE + 8])
async def test_connections_are_kept_also_while_there_are_many(at_once: int) -> None:
    async with serving() as (server, http):

        async def ask() -> None:
            for _ in range(5):
                assert (await http.get("/")).text == "hello"

        await asyncio.gather(*(ask() for _ in range(at_once)))
        assert server.accepted == at_once
        await http.get("/")
        await server.until_open(min(at_once, MAX_IDLE))


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async with serving() as (server, http):
        await http.get("/")
        for writer in server.writers:
            writer.close()
        await server.until_open(0)
        assert (await http.get("/")).text == "hello"
        assert server.accepted == 2


async def test_a_request_that_was_given_up_leaves_no_connection() -> None:
    async with serving() as (server, http):
        server.go.clear()
        request = asyncio.create_task(http.get("/"))
        await server.until_open(1)
        request.cancel()
        await asyncio.wait({request})
        server.go.set()
        await server.until_open(0)
        assert (await http.get("/")).text == "hello"


async def test_an_end_that_is_cancelled_leaves_no_connection() -> None:
    async with serving() as (server, http):
        await asyncio.gather(*(http.get("/") for _ in range(3)))
        await server.until_open(3)
        end = asyncio.create_task(http.aclose())
        await asyncio.sleep(0)
        end.cancel()
        await asyncio.wait({end})
        assert end.cancelled()
        await server.until_open(0)


async def test_a_body_that_was_not_read_to_its_end_leaves_no_connection() -> None:
    async with serving() as (server, http):
        async with http.stream("GET", "/"):
            await server.until_open(1)
        await server.until_open(0)


async def test_other_protocols_are_refused() -> None:
    async with serving() as (_, http):
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get("ftp://127.0.0.1/")


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return False


async def test_head_and_body_of_a_request_are_sent_together() -> None:
    written = Written()
    connection = Connection(cast(asyncio.Transport, written), Inbox())
    await connection.write(b"head ")
    await connection.write(b"body")
    await asyncio.sleep(0)
    assert written.pieces == [b"head body"]


async def test_a_large_body_is_sent_at_once() -> None:
    written, body = Written(), bytes(1_000_000)
    connection: httpcore.AsyncNetworkStream
    connection = Connection(cast(asyncio.Transport, written), Inbox())
    await connection.write(b"head ")
    await connection.write(body)
    assert written.pieces == [b"head " + body]
    await asyncio.sleep(0)
    assert len(written.pieces) == 1


async def test_a_stream_keeps_cookies_and_signs_in_by_the_address() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append(head.lower())
                writer.write(ANSWER.replace(b"\r\n", b"\r\nset-cookie: a=1\r\n", 1))
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, new_http(Endpoint(f"http://{place}")) as http:
        for address in (place, place, f"me:secret@{place}"):
            async with http.stream("GET", f"http://{address}/") as response:
                assert await response.aread() == b"hello"
    assert [b"cookie: a=1" in head for head in heads[:2]] == [False, True]
    assert [b"authorization: basic" in head for head in heads] == [False, False, True]
    with pytest.raises(RuntimeError):
        await http.send(http.build_request("GET", f"http://{place}/"), stream=True)
