"""The limits of connections and headers that the settings change."""

import json
import socket
from contextlib import ExitStack, suppress

import pytest

from shepherd.server.settings import ServerSettings
from shepherd.server.transport.table import ConnectionTable
from tests.patience import PATIENCE
from tests.server.harness import scripted

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def request(headers: int, size: int = 1) -> bytes:
    return GET + b"".join(b"X: " + b"y" * size + b"\r\n" for _ in range(headers)) + b"\r\n"


def test_the_number_and_the_size_of_headers_are_settings() -> None:
    with scripted("text: hi", ServerSettings(port=0, max_headers=10, max_header_bytes=2048)) as few:
        for sent in (request(11), request(1, 2100), request(9, 300)):
            answer = few.raw(sent)
            assert answer.startswith(b"HTTP/1.1 431 ")
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert body["error"]["code"] == "headers_too_large"
        target = b"GET /" + b"x" * 2100
        assert few.raw(target).startswith(b"HTTP/1.1 414 ")
        assert few.raw(request(5)[:-2] + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    many = ServerSettings(port=0, max_headers=2000, max_header_bytes=200_000)
    with scripted("text: hi", many) as roomy:
        answer = roomy.raw(request(1000, 100)[:-2] + b"Connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_trailers_have_the_same_limit() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    sent = head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: " + b"x" * 5000
    with scripted("text: hi", ServerSettings(port=0, max_header_bytes=2048)) as server:
        assert server.raw(sent).startswith(b"HTTP/1.1 431 ")


def test_an_idle_connection_is_closed_after_the_time_of_the_settings() -> None:
    settings = ServerSettings(port=0, idle_timeout=0.5, read_timeout=0.5)
    with scripted("text: hi", settings) as server, server.connect() as sock:
        sock.settimeout(PATIENCE)
        received = b""
        sock.sendall(GET + b"\r\n")
        while chunk := sock.recv(65_536):  # the answer, then the end
            received += chunk
    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_crowd_gets_an_error_object_or_a_closed_connection() -> None:
    half = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    settings = ServerSettings(port=0, max_connections=2)
    with scripted("text: hi", settings) as server, ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(2)]
        for sock in busy:
            sock.sendall(half)
        server.until(lambda: server.tasks == 2)
        answer = read_to_end(stack.enter_context(server.connect()))
        for sock in busy:
            sock.sendall(b"       }")
            assert sock.recv(12) == b"HTTP/1.1 400"
    if answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in head
        assert json.loads(body)["error"]["code"] == "too_many_connections"


def read_to_end(sock: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while chunk := sock.recv(65_536):
            received += chunk
    return received


@pytest.mark.parametrize("piece", [b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_bytes_that_trickle_in_do_not_restart_the_clock(piece: bytes) -> None:
    with scripted("text: hi", ServerSettings(port=0, read_timeout=0.5)) as server:
        with server.connect() as sock:
            sock.sendall(piece)
            sock.settimeout(0.05)
            received = b""
            for _ in range(int(PATIENCE / 0.05)):
                try:
                    sock.sendall(b"y")
                    received += sock.recv(100)
                except TimeoutError:
                    continue
                except OSError:
                    break
                if received:
                    break
        assert received.startswith(b"HTTP/1.1 408 ") or not received
        server.until(lambda: server.connections == 0)


def test_a_refusal_has_the_id_of_its_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shepherd")
    with scripted("text: hi") as server:
        answer = server.raw(b"GET /" + b"x" * 20_000)
    head = answer.partition(b"\r\n\r\n")[0].decode()
    (sent,) = [line for line in head.splitlines() if line.startswith("x-request-id: req_")]
    assert sent.removeprefix("x-request-id: ") in caplog.text


async def test_connections_over_a_unix_socket_share_no_limit_of_an_address() -> None:
    table = ConnectionTable(ServerSettings(max_connections=9, max_connections_per_address=1))
    assert [table.admit(LocalConnection()) for _ in range(10)] == [True] * 9 + [False]


class LocalConnection:
    """A busy connection over a Unix socket."""

    address = ""
    idle = False

    def check(self, now: float) -> None:
        """Nothing passes."""

    def close_idle(self) -> None:
        """It is never idle."""
