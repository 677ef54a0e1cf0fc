"""Answers of HTTP/1.1: where they end, and what must not pass for one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from shepherd.backends.api.http.client import new_http
from shepherd.backends.api.http.endpoint import Endpoint
from tests.patience import PATIENCE


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server that answers a request with the next bytes, then closes."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0))
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with listening, new_http(Endpoint(url)) as http:
        http.base_url = httpx.URL(url)
        async with asyncio.timeout(PATIENCE):
            yield http


OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"content-length: 2\r\n\r\nhi"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (SHORT, b"hi"),
        (CHUNKED + b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", b"hi"),
        (OK + b"\r\nup to the end", b"up to the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n" + SHORT, b"hi"),
        (SHORT + b" and more", b"hi"),
    ],
)
async def test_the_end_of_a_body(answer: bytes, body: bytes) -> None:
    async with answering(answer, answer) as http:
        for _ in range(2):
            assert (await http.get("/")).content == body


async def test_an_answer_to_head_has_no_body() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n") as http:
        assert (await http.head("/")).headers["content-length"] == "9"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "disconnected"),
        (b"HTTP/1.1 200 OK\r\ncontent-", "disconnected"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", "complete message"),
        (CHUNKED + b"2\r\nhi\r\n", "complete message"),
        (CHUNKED + b"xyz\r\n", "."),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!", "."),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", "too large"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "."),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "."),
    ],
)
async def test_a_wrong_answer_is_refused(answer: bytes, why: str) -> None:
    async with answering(answer) as http:
        with pytest.raises(httpx.RemoteProtocolError, match=why):
            await http.get("/")


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\0b"])
async def test_a_header_can_not_forge_another_one(value: str) -> None:
    async with answering(b"") as http:
        with pytest.raises(httpx.LocalProtocolError, match="Illegal header value"):
            await http.get("/", headers={"x-key": value})
