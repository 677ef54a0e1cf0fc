"""The limits of connections and headers that the settings change."""

import json
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE, POLL
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
        for endless in (b"GET /" + b"x" * 2100, GET + b"X: " + b"y" * 2100):
            assert few.raw(endless).startswith(b"HTTP/1.1 431 ")
        assert few.raw(request(5)[:-2] + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    many = ServerSettings(port=0, max_headers=2000, max_header_bytes=200_000)
    with scripted("text: hi", many) as roomy:
        answer = roomy.raw(request(1000, 100)[:-2] + b"Connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("trailers", [b"Trailer: " + b"x" * 5000, b"Trailer: x\r\n" * 500])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/nothing"])
def test_trailers_have_the_same_limit(path: bytes, trailers: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    few = ServerSettings(port=0, max_header_bytes=2048, max_body_bytes=65_536)
    with scripted("text: hi", few) as server:
        with server.connect() as sock:
            sock.sendall(head + b"2\r\n{}\r\n0\r\n")
            if path == b"/nothing":
                assert sock.recv(100).startswith(b"HTTP/1.1 404 ")
            with suppress(OSError):
                while sock.sendall(trailers) is None:
                    time.sleep(POLL)
        server.until(lambda: server.connections == server.tasks == 0)


def test_an_idle_connection_is_closed_after_the_time_of_the_settings() -> None:
    settings = ServerSettings.model_construct(port=0, idle_timeout=0.5, read_timeout=0.5)
    with scripted("text: hi", settings) as server, server.connect() as sock:
        sock.settimeout(PATIENCE)
        received = b""
        sock.sendall(GET + b"\r\n")
        while chunk := sock.recv(65_536):  # the answer, then the end
            received += chunk
    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_crowd_gets_an_error_object() -> None:
    half = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    settings = ServerSettings(port=0, max_connections=2)
    with scripted("text: hi", settings) as server, ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(2)]
        for sock in busy:
            sock.sendall(half)
        server.until(lambda: server.tasks == 2)
        third = stack.enter_context(server.connect())
        third.sendall(GET + b"\r\n")
        answer = read_to_end(third)
        for sock in busy:
            sock.sendall(b"       }")
            assert sock.recv(12) == b"HTTP/1.1 400"
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head
    assert json.loads(body)["error"]["code"] == "too_many_connections"


def read_to_end(sock: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while chunk := sock.recv(65_536):
            received += chunk
    return received


@pytest.mark.parametrize("piece", [b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_bytes_that_trickle_in_do_not_restart_the_clock(piece: bytes) -> None:
    with scripted("text: hi", ServerSettings.model_construct(port=0, read_timeout=0.5)) as server:
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
