"""A relay answers llama.cpp whatever becomes of the worker; both ends are real sockets."""

import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from shepherd.backends.llamacpp.rpc.protocol import (
    HELLO_REQUEST,
    SIZE,
    Address,
    Command,
    WorkerError,
    hello_answer,
    probe,
    receive_exactly,
    request,
)
from shepherd.backends.llamacpp.rpc.relay import Relay
from tests.backends.llamacpp.rpc.scripted_worker import FREE, ScriptedWorker, scripted_worker
from tests.patience import PATIENCE

GRAPH_COMPUTE = 10
SET_TENSOR = 6

OPEN: list[socket.socket] = []


@pytest.fixture
def worker() -> Iterator[ScriptedWorker]:
    with scripted_worker() as worker:
        yield worker
    for client in OPEN:
        client.close()
    OPEN.clear()


class Client:
    """llama.cpp's end of a relay's connection."""

    def __init__(self, relay: Relay) -> None:
        host, port = relay.endpoint.split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        OPEN.append(self.socket)
        self.socket.sendall(HELLO_REQUEST)
        assert receive_exactly(self.socket, len(hello_answer())) == hello_answer()

    def send(self, command: int, payload: bytes = b"") -> None:
        self.socket.sendall(struct.pack("<BQ", command, len(payload)) + payload)

    def tensor(self, size: int) -> bytes:
        self.send(Command.GET_TENSOR, bytes(300) + SIZE.pack(size))
        return self.answer()

    def answer(self) -> bytes:
        size = SIZE.unpack(receive_exactly(self.socket, 8))[0]
        return receive_exactly(self.socket, size)


def relay_of(worker: ScriptedWorker, timeout: float = PATIENCE) -> tuple[Relay, threading.Event]:
    relay, lost = Relay(probe(worker.address), timeout), threading.Event()
    relay.add_listener(lost.set)
    return relay, lost


def test_a_probe_reads_what_the_worker_offers(worker: ScriptedWorker) -> None:
    info = probe(worker.address)
    assert len(info.devices) == 2
    assert info.devices[1].free == FREE


def test_all_bytes_pass_while_the_worker_is_there(worker: ScriptedWorker) -> None:
    relay, _ = relay_of(worker)
    client = Client(relay)
    client.send(SET_TENSOR, b"w" * 3_000_000)
    client.send(GRAPH_COMPUTE, b"graph")
    assert client.tensor(5) == b"xxxxx"
    assert client.tensor(2_500_000) == b"x" * 2_500_000
    assert worker.received[-3] == (GRAPH_COMPUTE, b"graph")
    assert worker.received[-4] == (SET_TENSOR, b"w" * 3_000_000)
    assert relay.lost == ""


OTHER_USER = 65534


@pytest.mark.parametrize("user", [None, OTHER_USER])
def test_only_this_process_can_use_a_relay(worker: ScriptedWorker, user: int | None) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can run a program as another user")
    relay, _ = relay_of(worker)
    before = len(worker.received)
    port = relay.endpoint.partition(":")[2]
    hello = "".join(f"\\x{byte:02x}" for byte in HELLO_REQUEST)
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{hello}' >&3; cat <&3"
    result = subprocess.run(
        ["bash", "-c", script], user=user, capture_output=True, check=False, timeout=PATIENCE
    )
    assert result.stdout == b""
    assert len(worker.received) == before
    assert Client(relay).tensor(1) == b"x"


def test_a_worker_that_dies_before_its_answer_leaves_zeros(worker: ScriptedWorker) -> None:
    relay, lost = relay_of(worker)
    client = Client(relay)
    worker.closes_after = GRAPH_COMPUTE
    client.send(GRAPH_COMPUTE)
    assert client.tensor(4) == bytes(4)
    assert lost.wait(PATIENCE)
    assert f"The RPC worker at {worker.address} was lost: " in relay.lost
    client.send(Command.ALLOC_BUFFER, bytes(12))
    assert client.answer() == bytes(16)


def test_a_worker_that_dies_while_nothing_runs_is_noticed(worker: ScriptedWorker) -> None:
    relay, lost = relay_of(worker)
    client = Client(relay)
    assert client.tensor(1) == b"x"
    worker.hang_up()
    assert lost.wait(PATIENCE)
    assert relay.lost.endswith("it closed the connection.")


def test_a_silent_worker_is_lost_after_the_timeout(worker: ScriptedWorker) -> None:
    relay, lost = relay_of(worker, 0.2)
    client = Client(relay)
    worker.silent_after = GRAPH_COMPUTE
    client.send(GRAPH_COMPUTE)
    assert client.tensor(4) == bytes(4)
    assert lost.wait(PATIENCE)
    assert "did not answer for 0.2 seconds (llamacpp.rpc_timeout)" in relay.lost


def test_a_worker_that_owes_nothing_may_be_silent(worker: ScriptedWorker) -> None:
    late = 0.0
    relay = Relay(probe(worker.address), PATIENCE, lambda: time.monotonic() + late)
    client = Client(relay)
    assert client.tensor(1) == b"x"
    late = 10 * PATIENCE
    assert client.tensor(1) == b"x"
    assert relay.lost == ""


def test_an_answer_of_the_wrong_size_is_not_passed_on(worker: ScriptedWorker) -> None:
    relay, _ = relay_of(worker)
    client = Client(relay)
    worker.wrong_size_of = Command.GET_TENSOR
    assert client.tensor(4) == bytes(4)
    assert relay.lost.endswith("it sent an answer of the wrong size.")


def test_the_same_relay_serves_a_worker_that_is_back(worker: ScriptedWorker) -> None:
    relay, lost = relay_of(worker)
    client = Client(relay)
    worker.hang_up()
    assert lost.wait(PATIENCE)
    client.send(Command.GET_ALIGNMENT, bytes(4))
    client.answer()
    client.socket.close()
    relay.restore(probe(worker.address))
    assert Client(relay).tensor(1) == b"x"
    assert relay.lost == ""


def test_a_relay_is_given_up_once_a_substitute_may_be_remembered(worker: ScriptedWorker) -> None:
    relay, lost = relay_of(worker)
    client = Client(relay)
    worker.hang_up()
    assert lost.wait(PATIENCE)
    client.send(Command.GET_ALLOC_SIZE, bytes(900))
    assert client.answer() == bytes(8)
    assert not relay.can_serve(relay.info)


def test_a_worker_that_is_away_is_named(worker: ScriptedWorker) -> None:
    worker.close()
    with pytest.raises(WorkerError, match=f"{worker.address} can't be reached: Connection refused"):
        probe(worker.address)


def test_a_busy_worker_is_named(worker: ScriptedWorker) -> None:
    worker.silent_after = Command.HELLO
    with pytest.raises(WorkerError, match="serves another program"):
        probe(worker.address, 0.2)


def test_a_worker_of_another_version_is_named(worker: ScriptedWorker) -> None:
    worker.major = 6
    with pytest.raises(WorkerError, match=r"version 6\.0 of the protocol, and this Shepherd 7\.0"):
        probe(worker.address)


def test_another_server_is_no_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(WorkerError, match="is not an RPC worker"):
            probe(Address("127.0.0.1", listener.getsockname()[1]))


def test_a_worker_without_devices_is_refused(worker: ScriptedWorker) -> None:
    worker.devices = 0
    with pytest.raises(WorkerError, match="names 0 devices"):
        probe(worker.address)


def test_a_request_has_its_size_before_its_payload() -> None:
    assert request(Command.HELLO, b"ab") == bytes([14, 2, 0, 0, 0, 0, 0, 0, 0]) + b"ab"
