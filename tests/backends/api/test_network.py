"""Connections: everything arrives, nothing is lost, and what breaks has a name."""

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import cast

import httpcore
import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.api.http.client import new_http
from shepherd.backends.api.http.endpoint import Endpoint
from shepherd.backends.api.http.network import MAX_UNREAD, Network, in_words
from shepherd.backends.api.http.pool import ConnectionPool
from shepherd.backends.api.http.transport import Transport
from tests.backends.api.certificates import contexts

PATIENCE = 30.0
SHORT = 0.05
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """Whoever is at the other end; `go` lets it go on, and `sent` bytes have left it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.sent = 0
        self.port = 0

    async def wait(self, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Say nothing until `go`."""
        await self.go.wait()


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A server; yields its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        tasks.add(task)
        with closing(writer), suppress(ConnectionError, asyncio.CancelledError):
            await handler(reader, writer)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def connected(handler: Handler) -> AsyncGenerator[httpcore.AsyncNetworkStream]:
    async with serving(handler) as port:
        stream = await Network().connect_tcp("127.0.0.1", port, timeout=PATIENCE)
        try:
            yield stream
        finally:
            await stream.aclose()


async def read_all(stream: httpcore.AsyncNetworkStream, most: int = 65536) -> bytes:
    pieces: list[bytes] = []
    while piece := await stream.read(most, timeout=PATIENCE):
        assert len(piece) <= most
        pieces.append(piece)
    return b"".join(pieces)


def body(size: int) -> bytes:
    return random.Random(0).randbytes(size)


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8), most=st.integers(1, 50))
def test_what_is_sent_comes_whatever_its_pieces(pieces: list[bytes], most: int) -> None:
    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)

    async def run() -> bytes:
        async with connected(send) as stream:
            return await read_all(stream, most)

    assert asyncio.run(run()) == b"".join(pieces)


async def test_a_sender_that_is_faster_than_its_reader_has_to_wait() -> None:
    whole, sent = body(64 * 1024 * 1024), 0

    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < len(whole):
            writer.write(whole[sent : sent + MAX_UNREAD])
            await writer.drain()
            sent += MAX_UNREAD

    async with connected(send) as stream:
        first = await stream.read(10, timeout=PATIENCE)
        before = -1
        while before < sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < len(whole) // 2
        assert first + await read_all(stream) == whole


async def test_a_read_that_is_cancelled_loses_nothing() -> None:
    peer = Peer()

    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.go.wait()
        writer.write(b"after all")

    async with connected(send) as stream:
        reading = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        with pytest.raises(httpcore.ReadTimeout, match=r"no answer within 0\.05 s"):
            await stream.read(100, timeout=SHORT)
        peer.go.set()
        assert await read_all(stream) == b"after all"
        assert await stream.read(100) == b""


async def test_a_connection_that_is_reset_says_so() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with connected(reset) as stream:
        await stream.write(b"x", timeout=PATIENCE)
        for _ in range(2):
            with pytest.raises(httpcore.ReadError, match="Connection reset by peer"):
                await stream.read(100, timeout=PATIENCE)
        with pytest.raises(httpcore.WriteError, match="Connection reset by peer"):
            await stream.write(b"x", timeout=PATIENCE)
        assert stream.get_extra_info("is_readable")


async def test_a_peer_that_does_not_read_is_not_waited_for_for_ever() -> None:
    peer = Peer()
    async with connected(peer.wait) as stream:
        with pytest.raises(httpcore.WriteTimeout, match="no answer within"):
            await stream.write(bytes(1 << 26), timeout=SHORT)


async def test_a_write_goes_on_when_the_peer_reads_again() -> None:
    peer, whole, got = Peer(), body(32 * 1024 * 1024), list[bytes]()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.go.wait()
        got.append(await reader.readexactly(len(whole)))
        writer.write(b"thanks")

    async with connected(late) as stream:
        writing = asyncio.create_task(stream.write(whole, timeout=PATIENCE))
        await asyncio.sleep(SHORT)
        assert not writing.done()
        peer.go.set()
        await writing
        assert await read_all(stream) == b"thanks"
        assert got == [whole]


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
async def test_an_idle_connection_is_known_to_be_of_no_more_use(unasked: bytes) -> None:
    peer = Peer()

    async def leave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.go.wait()
        writer.write(unasked)

    async with connected(leave) as stream:
        assert not stream.get_extra_info("is_readable")
        peer.go.set()
        async with asyncio.timeout(PATIENCE):
            while not stream.get_extra_info("is_readable"):
                await asyncio.sleep(0.01)
        await asyncio.sleep(SHORT)
        assert stream.get_extra_info("is_readable")
        await stream.aclose()
        assert stream.get_extra_info("is_readable")
        assert stream.get_extra_info("nothing known") is None


async def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(httpcore.ConnectError, match=r"^Connection refused$"):
            await Network().connect_tcp("127.0.0.1", port, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1, 0, 0)"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "Connection refused"),
        (OSError("[Errno 111] a, [Errno 101] b"), "Connection refused, Network is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("something else"), "something else"),
    ],
)  # fmt: skip
def test_errors_in_words(error: OSError, words: str) -> None:
    assert in_words(error) == words


def asking(url: str) -> httpx.AsyncClient:
    """A client as backends have it."""
    http = new_http(Endpoint(url))
    http.base_url = httpx.URL(url)
    return http


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
    monkeypatch.setattr(Endpoint, "is_near", False)
    async with serving(hello, server) as port, asking(f"https://127.0.0.1:{port}") as http:
        for _ in range(3):
            response = await http.get("/")
            assert response.text.split() == [f"word{n}" for n in range(8)]
            stream = response.extensions["network_stream"]
            assert isinstance(stream.get_extra_info("ssl_object"), ssl.SSLObject)


async def test_tls_with_a_certificate_that_nobody_knows(tmp_path: Path) -> None:
    server, _ = contexts(tmp_path)
    async with serving(hello, server) as port, asking(f"https://127.0.0.1:{port}") as http:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await http.get("/")


async def test_tls_with_a_peer_that_says_nothing() -> None:
    peer = Peer()
    async with connected(peer.wait) as stream:
        with pytest.raises(httpcore.ConnectTimeout, match="no answer within"):
            await stream.start_tls(ssl.create_default_context(), "127.0.0.1", timeout=SHORT)
        assert stream.get_extra_info("is_readable")


async def test_tls_with_a_peer_that_hangs_up() -> None:
    async def leave(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    async with connected(leave) as stream:
        with pytest.raises(httpcore.ConnectError):
            await stream.start_tls(ssl.create_default_context(), "127.0.0.1", timeout=PATIENCE)


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


async def test_http2_many_at_once_on_one_connection(tmp_path: Path) -> None:
    server, client = contexts(tmp_path, "h2")
    transport = Transport(client, httpx.Limits(), http2=True)
    async with serving(speak_http2, server) as port, httpx.AsyncClient(transport=transport) as http:
        url = f"https://127.0.0.1:{port}"
        await http.get(url)
        paths = [f"/{'-'.join(['piece'] * n)}" for n in range(1, 20)]
        answers = await asyncio.gather(*(http.get(url + path) for path in paths))
        assert [a.text for a in answers] == [p.replace("-", "") for p in paths]
        assert {a.http_version for a in answers} == {"HTTP/2"}
        assert len({id(a.extensions["network_stream"]) for a in answers}) == 1


ERRORS = [e for e in vars(httpcore).values() if isinstance(e, type) and issubclass(e, Exception)]
NAMES = sorted(
    error.__name__
    for error in ERRORS
    if not error.__subclasses__() and error is not httpcore.ConnectionNotAvailable
)
"""The errors that are raised; the others are families, or stay in the pool."""


@pytest.mark.parametrize("name", NAMES)
async def test_every_error_becomes_httpxs_of_the_same_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise getattr(httpcore, name)("what happened")

    monkeypatch.setattr(ConnectionPool, "handle_async_request", fail)
    async with asking("http://127.0.0.1:9") as http:
        with pytest.raises(getattr(httpx, name), match="what happened") as raised:
            await http.get("/path")
    assert str(raised.value.request.url) == "http://127.0.0.1:9/path"


async def test_a_body_that_breaks_off_is_httpxs_error() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")

    async with serving(cut) as port, asking(f"http://127.0.0.1:{port}") as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")
