"""Clients that send or read too slowly, too many at once, or hang up all the time."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted, scripted
from tests.server.held import HeldBackend

IMPATIENT = ServerSettings.model_construct(
    port=0, read_timeout=0.3, write_timeout=0.3, max_body_bytes=100_000
)
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted("text: hi", IMPATIENT) as running:
        yield running


def is_healthy(server: RunningServer[ScriptedBackend]) -> bool:
    """Whether the server answers; a request of a busy machine may be too slow for it."""
    for _ in range(20):
        if httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200:
            return True
    return False


def read_to_end(sock: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := sock.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"\r\n", b""),
        (b"G", b"HTTP/1.1 408 "),
        (HEAD, b"HTTP/1.1 408 "),
        (HEAD + b"Content-Length: 10\r\n\r\n", b"HTTP/1.1 408 "),
        (HEAD + b"Content-Length: 10\r\n\r\n{", b"HTTP/1.1 408 "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"HTTP/1.1 408 "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: ", b"HTTP/1.1 408 "),
    ],
)
def test_half_a_request_is_not_waited_for(server: Scripted, sent: bytes, answer: bytes) -> None:
    with server.connect() as sock:
        sock.sendall(sent)
        received = read_to_end(sock)
    assert received.startswith(answer)
    if b"\r\n\r\n" in sent:  # the head was whole
        assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"


def test_a_request_that_trickles_in_is_not_waited_for(server: Scripted) -> None:
    with server.connect() as sock, pytest.raises(OSError):
        trickle(sock, HEAD * 1000)


def trickle(sock: socket.socket, sent: bytes) -> None:
    for byte in sent:
        sock.sendall(bytes([byte]))
        time.sleep(0.01)


def test_half_sent_requests_are_closed_before_a_key_is_checked(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    backend = ScriptedBackend(parse_script("text: hi"))
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(backend, IMPATIENT, keys))
        socks = [stack.enter_context(server.connect()) for _ in range(300)]
        for number, sock in enumerate(socks):
            sock.sendall([b"", b"GET /he", HEAD + b"Content-Length: 9\r\n\r\n"][number % 3])
        assert is_healthy(server)
        for sock in socks:
            read_to_end(sock)
        server.until(lambda: server.connections <= 1)


def test_a_body_of_a_gigabyte_is_not_read(server: Scripted) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    sent = 0
    with server.connect() as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while sent < 2**30:
                sock.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
    assert sent < 2**26


def test_a_refused_body_is_not_read_for_ever(server: Scripted) -> None:
    sent = 0
    with server.connect() as sock:
        sock.sendall(
            b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n"
        )
        try:
            while sent < 2**30:
                sock.sendall(b" " * 65_536)
                sent += 65_536
        except OSError:
            pass
    assert sent < 2**26


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    backend = ScriptedBackend(parse_script("chunk: 5000\ntext: " + "word " * 1_000_000))
    with RunningServer(backend, IMPATIENT) as server:
        with server.connect_and_post({"messages": HI, "stream": True}) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            assert sock.recv(5) == b"HTTP/"
            server.until(lambda: server.connections == 0)
        assert is_healthy(server)


@pytest.mark.parametrize("at_once", [False, True])
def test_connections_are_limited_and_idle_ones_make_room(*, at_once: bool) -> None:
    settings = ServerSettings(port=0, max_connections=5)
    with RunningServer(HeldBackend(hold_prefill=True), settings) as server, ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(5)]
        server.until(lambda: server.connections == 5)
        if at_once:  # the server sees the new ones together
            pool = stack.enter_context(ThreadPoolExecutor(1))
            pool.submit(server.do, _sleep())
        for _ in range(5):
            stack.enter_context(server.connect_and_post({"messages": HI}))
        for sock in idle:
            assert read_to_end(sock) == b""
        server.until(lambda: server.backend.working + server.backend.queued == 5)
        refused = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 503 ") or refused == b""
        server.do(_let_go(server.backend))


async def _sleep() -> None:
    time.sleep(0.2)  # noqa: ASYNC251 - nothing else may happen


async def _let_go(backend: HeldBackend) -> None:
    backend.go.set()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_hanging_up_all_the_time_leaks_nothing() -> None:
    with RunningServer(HeldBackend(hold_generation=True)) as server:
        before = None
        for count in range(200):
            with server.connect_and_post({"messages": HI, "stream": count % 2 == 0}) as sock:
                if count % 3 == 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if count % 5 == 0:
                    server.until(lambda: server.backend.working == 1)
            if count == 20:
                server.until(lambda: server.connections == 0)
                before = open_files()
        server.until(lambda: server.connections == 0)
        server.until(lambda: server.backend.holding == server.backend.queued == 0)
        server.until(lambda: server.tasks == 0)
        assert before is not None
        server.until(lambda: open_files() <= before)


def test_a_removed_key_ends_its_streams(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.json")
    key, other = store.add("laptop"), store.add("other")
    backend = HeldBackend(hold_generation=True)
    settings = ServerSettings.model_construct(port=0, keepalive=0.05)
    with RunningServer(backend, settings, KeyStore(store.path)) as server:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"messages": HI, "stream": True}
        with httpx.stream(
            "POST", server.url + CHAT, json=body, headers=headers, timeout=PATIENCE
        ) as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()
            assert next(lines)
            store.remove("laptop")
            events = [line for line in lines if line.startswith("data:")]
        assert json.loads(events[-1].removeprefix("data:"))["error"]["code"] == "invalid_api_key"
        server.until(lambda: backend.holding == backend.working == 0)
        assert backend.stopped == 1
        listed = {"Authorization": f"Bearer {other}"}
        assert httpx.get(f"{server.url}/v1/models", headers=listed).status_code == 200


def test_a_removed_key_ends_an_answer_that_has_not_begun(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.json")
    key = store.add("laptop")
    backend = HeldBackend(hold_prefill=True)
    with RunningServer(backend, None, KeyStore(store.path)) as server:
        head = HEAD + f"Authorization: Bearer {key}\r\n".encode()
        body = json.dumps({"messages": HI}).encode()
        with server.connect() as sock:
            sock.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            server.until(lambda: backend.working == 1)
            store.remove("laptop")
            assert sock.recv(20).startswith(b"HTTP/1.1 401 ")
        server.until(lambda: backend.working == 0)
