"""Connections to providers: which are used again, how they are encrypted, and what breaks."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from shepherd.backends.api.http.client import Endpoint, new_http, reason
from shepherd.backends.api.http.failures import RequestTarget, unreachable
from tests.backends.api.certificates import contexts
from tests.patience import PATIENCE, POLL

MAX_IDLE = 32
FAR = "api.shepherd-tests.example"
"""A host that is not on this machine or network, as far as its name says."""

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each request; `accepted` counts connections, `writers` are those that are open."""

    accepted: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                await self.go.wait()
                writer.write(ANSWER)
        self.writers.discard(writer)

    async def until_asked(self) -> None:
        """Wait for the head of a request."""
        async with asyncio.timeout(PATIENCE):
            while not self.heads:
                await asyncio.sleep(POLL)

    async def until_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        async with asyncio.timeout(PATIENCE):
            while len(self.writers) != count:
                await asyncio.sleep(POLL)


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A server on 127.0.0.1; yields its port."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            pass  # the client has left, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def asking(url: str, *, http2: bool = False) -> httpx.AsyncClient:
    """A client as backends have it."""
    http = new_http(Endpoint(url, http2=http2))
    http.base_url = httpx.URL(url)
    return http


@asynccontextmanager
async def asked() -> AsyncGenerator[tuple[Server, httpx.AsyncClient]]:
    """A server that answers at once, and a client of it; nothing stays open behind them."""
    server = Server()
    server.go.set()
    async with serving(server.answer) as port, asking(f"http://127.0.0.1:{port}") as http:
        yield server, http
        await http.aclose()
        await server.until_open(0)


@pytest.mark.parametrize("at_once", [1, MAX_IDLE, MAX_IDLE + 8])
async def test_connections_are_kept_also_while_there_are_many(at_once: int) -> None:
    async with asked() as (server, http):

        async def ask() -> None:
            for _ in range(5):
                assert (await http.get("/")).text == "hello"

        await asyncio.gather(*(ask() for _ in range(at_once)))
        await http.get("/")
        await server.until_open(min(at_once, MAX_IDLE))


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async with asked() as (server, http):
        await http.get("/")
        for writer in server.writers:
            writer.close()
        await server.until_open(0)
        assert (await http.get("/")).text == "hello"
        assert server.accepted == 2


async def test_a_request_that_was_given_up_leaves_no_connection() -> None:
    async with asked() as (server, http):
        server.go.clear()
        request = asyncio.create_task(http.get("/"))
        # A cancel while anyio connects can leave its connection open.
        await server.until_asked()
        request.cancel()
        await asyncio.wait({request})
        server.go.set()
        await server.until_open(0)
        assert (await http.get("/")).text == "hello"


async def test_a_body_that_was_not_read_to_its_end_leaves_no_connection() -> None:
    async with asked() as (server, http):
        async with http.stream("GET", "/"):
            await server.until_open(1)
        await server.until_open(0)


async def test_an_address_may_hold_the_data_for_signing_in() -> None:
    async with asked() as (server, http):
        await http.get(http.base_url.copy_with(userinfo=b"me:secret"))
        assert b"authorization: basic" in server.heads[0].lower()


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\0b"])
async def test_a_header_can_not_forge_another_one(value: str) -> None:
    async with asked() as (_, http):
        with pytest.raises(httpx.LocalProtocolError, match="Illegal header value"):
            await http.get("/", headers={"x-key": value})


async def test_only_far_servers_are_reached_by_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asked() as (server, _), serving(server.answer) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with serving(server.answer) as near, asking(f"http://127.0.0.1:{near}") as http:
            assert (await http.get("/near")).text == "hello"
        async with asking(f"http://{FAR}", http2=True) as http:
            assert (await http.get("/far")).text == "hello"
    places = [head.partition(b"\r\n")[0] for head in server.heads]
    assert places == [b"GET /near HTTP/1.1", f"GET http://{FAR}/far HTTP/1.1".encode()]


async def test_the_proxy_of_the_environment_is_not_for_hosts_that_it_excepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    async with serving(server.answer) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        monkeypatch.setenv("no_proxy", FAR)
        async with asking(f"http://{FAR}") as http:
            with pytest.raises(httpx.ConnectError):
                await http.get("/")
    assert server.accepted == 0


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests with eight chunks, as long as they come."""
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for n in range(8):
            writer.write(b"6\r\nword%d \r\n" % n)
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")


async def test_tls_with_a_certificate_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = contexts(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with serving(hello, server) as port, asking(f"https://127.0.0.1:{port}") as http:
        for _ in range(3):
            response = await http.get("/")
            assert response.text.split() == [f"word{n}" for n in range(8)]
            stream = response.extensions["network_stream"]
            assert isinstance(stream.get_extra_info("ssl_object"), ssl.SSLObject)


async def test_tls_with_a_certificate_that_nobody_knows(tmp_path: Path) -> None:
    server, _ = contexts(tmp_path)
    async with serving(hello, server) as port, asking(f"https://127.0.0.1:{port}") as http:
        with pytest.raises(httpx.ConnectError) as raised:
            await http.get("/")
        assert "certificate verify failed" in reason(raised.value)


async def speak_http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its path, word by word, requests in turn."""
    http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    http.initiate_connection()
    writer.write(http.data_to_send())
    while data := await reader.read(65536):
        for event in http.receive_data(data):
            if isinstance(event, RequestReceived):
                headers = dict(cast("list[tuple[str, str]]", event.headers))
                http.send_headers(event.stream_id, [(":status", "200")])
                for piece in headers[":path"].split("-"):
                    http.send_data(event.stream_id, piece.encode())
                    writer.write(http.data_to_send())
                    await asyncio.sleep(0)
                http.end_stream(event.stream_id)
        writer.write(http.data_to_send())


class Vendor(Endpoint, frozen=True):
    """One of the vendors' own hosts, although its address is on this machine."""

    @property
    def is_near(self) -> bool:
        return False


async def test_http2_many_at_once_on_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = contexts(tmp_path, "h2")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with (
        serving(speak_http2, server) as port,
        new_http(Vendor(f"https://127.0.0.1:{port}", http2=True)) as http,
    ):
        http.base_url = httpx.URL(f"https://127.0.0.1:{port}")
        await http.get("/")
        paths = [f"/{'-'.join(['piece'] * n)}" for n in range(1, 20)]
        answers = await asyncio.gather(*map(http.get, paths))
        assert [a.text for a in answers] == [p.replace("-", "") for p in paths]
        assert {a.http_version for a in answers} == {"HTTP/2"}
        assert len({id(a.extensions["network_stream"]) for a in answers}) == 1


async def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with asking(f"http://127.0.0.1:{nobody.getsockname()[1]}") as http:
            with pytest.raises(httpx.ConnectError) as raised:
                await http.get("/")
    assert reason(raised.value) == "Connection refused"


async def test_a_connection_that_is_reset_says_so() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serving(reset) as port, asking(f"http://127.0.0.1:{port}") as http:
        with pytest.raises(httpx.ReadError) as raised:
            await http.get("/")
    assert reason(raised.value) == "Connection reset by peer"


@pytest.mark.parametrize(
    ("url", "through"),
    [
        (f"https://{FAR}/v1", " through the proxy proxy.test:3128: refused"),
        (f"http://{FAR}/v1", ": refused"),
        ("https://127.0.0.1/v1", ": refused"),
        ("https://excepted.example.com/v1", ": refused"),
    ],
)
def test_a_failed_connection_names_the_proxy_and_not_its_password(
    url: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://user:password@proxy.test:3128")
    monkeypatch.setenv("no_proxy", "excepted.example.com")
    target = RequestTarget("far", url=url, proxy=Endpoint(url).proxy)
    assert f"far can't be reached at {url}{through}." in str(unreachable(target, "refused").error)
