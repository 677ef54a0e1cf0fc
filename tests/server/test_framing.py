"""Requests that two programs could read differently, and the shape of every refusal."""

import asyncio
import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

import pytest

from shepherd.server.listen import bind
from shepherd.server.settings import ServerSettings
from tests.server.harness import CHAT, HI, Scripted, scripted

BODY = json.dumps({"messages": HI}).encode()
LENGTH = f"Content-Length: {len(BODY)}\r\n".encode()
JSON = b"Content-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CLOSE = b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    settings = ServerSettings(port=0, cors_origins=["https://friend.example"])
    with scripted("text: hi", settings) as running:
        yield running


class _Received:
    """Bytes in the place of a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._received)


def parse(received: bytes, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the first answer."""
    sock: Any = _Received(received)
    response = HTTPResponse(sock, method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers, response.read()


def error_code(received: bytes) -> str:
    """The code of an error that has OpenAI's shape."""
    _, headers, body = parse(received)
    assert headers["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].isprintable()
    return error["code"]


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health HTTP/1.1\nHost: localhost\n\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\n\r\n",
        GET + b"X-Folded: a\r\n b\r\n\r\n",
        GET + b"X-Folded: a\r\n\tb\r\n\r\n",
        GET + b"X Space: a\r\n\r\n",
        GET + b"X-Space : a\r\n\r\n",
        GET + b": a\r\n\r\n",
        GET + b"X-Nul: a\0b\r\n\r\n",
        GET + b"X-Long: " + b"a" * 200_000,
        b"GET /" + b"a" * 200_000,
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[::1/health HTTP/1.1\r\nHost: [::1\r\n\r\n",
        POST + JSON + LENGTH + CHUNKED + b"\r\n0\r\n\r\n",
        POST + JSON + CHUNKED + LENGTH + b"\r\n0\r\n\r\n",
        POST + JSON + LENGTH + LENGTH + b"\r\n" + BODY,
        POST + JSON + b"Content-Length: 5, 5\r\n\r\n" + BODY,
        POST + JSON + b"content-length : 5\r\n\r\n" + BODY,
        POST + JSON + b"Content-Length: +5\r\n\r\n" + BODY,
        POST + JSON + b"Content-Length: -5\r\n\r\n" + BODY,
        POST + JSON + b"Content-Length: 0x5\r\n\r\n" + BODY,
        POST + JSON + b"Content-Length: \r\n\r\n" + BODY,
        POST + JSON + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY,
        POST + JSON + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
        POST + JSON + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + JSON + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
        POST + JSON + CHUNKED + b"\r\nzz\r\n",
        POST + JSON + CHUNKED + b"\r\n-1\r\n",
        POST + JSON + CHUNKED + b"\r\n1\r\nab\r\n",
    ],
)
def test_what_two_programs_could_read_differently_is_refused(
    server: Scripted, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    received = server.raw(sent)
    status, headers, _ = parse(received)
    assert (status, headers["connection"]) in ((400, "close"), (431, "close"))
    assert received.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.exc_info]
    assert parse(server.raw(GET + CLOSE))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (GET + b"Host: localhost\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: \r\n\r\n", 403),
        (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"POST / HTTP/1.0\r\nHost: localhost\r\n" + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (GET + b"X-Many: a\r\n" * 200 + b"\r\n", 431),
        (GET + b"X-Long: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET http://localhost:1/health HTTP/1.1\r\nHost: other\r\n\r\n", 403),
    ],
)
def test_requests_that_can_not_be_served_are_refused_in_shape(
    server: Scripted, caplog: pytest.LogCaptureFixture, sent: bytes, status: int
) -> None:
    received = server.raw(sent.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    assert parse(received)[0] == status
    assert error_code(received)
    assert received.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.exc_info]


def test_what_follows_a_refused_request_is_not_read(server: Scripted) -> None:
    received = server.raw(POST + LENGTH + CHUNKED + b"\r\n0\r\n\r\n" + GET + CLOSE)
    assert received.count(b"HTTP/1.1 ") == 1


def test_bad_framing_behind_the_answer_ends_the_connection(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    unread = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"\r\n"
    received = server.raw(unread + b"1\r\na\r\n" + b"zz\r\n")
    assert received.count(b"HTTP/1.1 ") <= 1
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("split", [1, 7, 40])
def test_a_request_may_arrive_in_pieces(server: Scripted, split: int) -> None:
    sent = POST + JSON + LENGTH + CLOSE + BODY
    with server.connect() as sock:
        for start in range(0, len(sent), split):
            sock.sendall(sent[start : start + split])
        received = b"".join(iter(lambda: sock.recv(65_536), b""))
    assert parse(received)[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n",
        b"GET HTTP://LOCALHOST:8000/health?x=1 HTTP/1.1\r\nHost: localhost:8000\r\n",
        b"GET /health/ HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
    ],
)
def test_other_ways_to_ask_for_the_same(server: Scripted, head: bytes) -> None:
    status, _, body = parse(server.raw(head + CLOSE))
    assert (status, json.loads(body)["status"]) == (200, "ok")


def test_a_slash_at_the_end_keeps_the_body(server: Scripted) -> None:
    sent = POST.replace(b" HTTP", b"/ HTTP") + JSON + LENGTH + CLOSE + BODY
    status, _, body = parse(server.raw(sent))
    assert (status, json.loads(body)["object"]) == (200, "chat.completion")


@pytest.mark.parametrize(
    ("path", "status"), [(b"/health", 200), (b"/v1/models", 200), (b"/nothing", 404)]
)
def test_head_is_get_without_a_body(server: Scripted, path: bytes, status: int) -> None:
    received = server.raw(b"HEAD " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + CLOSE)
    found, headers, body = parse(received, "HEAD")
    assert (found, headers["content-type"], body) == (status, "application/json", b"")
    assert received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (GET.replace(b"/health", b"/nothing"), "not_found"),
        (GET.replace(b"/health", b"*"), "not_found"),
        (GET.replace(b"GET", b"TRACE"), "method_not_allowed"),
        (GET.replace(b"/health", CHAT.encode()), "method_not_allowed"),
        (GET + b"Origin: https://evil.example\r\n", "origin_not_allowed"),
    ],
)
def test_refusals_of_routes_have_the_same_shape(server: Scripted, sent: bytes, code: str) -> None:
    assert error_code(server.raw(sent + CLOSE)) == code


def test_a_client_that_waits_for_the_word_to_go_on_gets_it(server: Scripted) -> None:
    with server.connect() as sock:
        sock.sendall(POST + JSON + LENGTH + b"Expect: 100-continue\r\n" + CLOSE)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(BODY)
        assert parse(b"".join(iter(lambda: sock.recv(65_536), b"")))[0] == 200


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate, gzip", b"br", b"zstd", b"x"])
def test_encoded_bodies_are_refused_by_name(server: Scripted, encoding: bytes) -> None:
    sent = POST + JSON + LENGTH + b"Content-Encoding: " + encoding + b"\r\n" + CLOSE + BODY
    received = server.raw(sent)
    assert (parse(received)[0], error_code(received)) == (415, "unsupported_media_type")
    assert encoding in received


def test_a_missing_content_type_is_json_but_not_from_a_page(server: Scripted) -> None:
    assert parse(server.raw(POST + LENGTH + CLOSE + BODY))[0] == 200
    page = b"Origin: http://localhost:3000\r\n"
    assert parse(server.raw(POST + page + LENGTH + CLOSE + BODY))[0] == 415


async def test_small_parts_of_a_stream_are_sent_at_once() -> None:
    delays: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        delays.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = bind(ServerSettings(port=0))
    async with await asyncio.start_server(accept, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await delays
        writer.close()
