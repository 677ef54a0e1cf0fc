"""Requests are understood however their bytes arrive, and each one has a harmless answer."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.llamacpp.rpc.protocol import (
    Address,
    Command,
    Request,
    RequestReader,
    WorkerDevice,
    hello_answer,
    parse_addresses,
    substitute,
)
from shepherd.errors import ConfigError
from tests.examples import examples

HEAD = struct.Struct("<BQ")
DEVICES = (WorkerDevice(10, 20, 32, 99), WorkerDevice(30, 40, 64, 88))

REQUESTS = st.lists(st.tuples(st.integers(0, 17), st.binary(max_size=40)), max_size=8)


@settings(max_examples=examples(200))
@given(REQUESTS, st.lists(st.integers(1, 30), min_size=1))
def test_requests_are_read_from_pieces_of_any_size(
    requests: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    stream = b"".join(HEAD.pack(command, len(load)) + load for command, load in requests)
    reader, seen, turn = RequestReader(), list[Request](), 0
    while stream:
        size = sizes[turn % len(sizes)]
        seen += reader.feed(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert [(request.command, request.payload) for request in seen] == requests


def test_a_large_payload_is_followed_but_not_kept() -> None:
    reader, load = RequestReader(), bytes(5000)
    assert list(reader.feed(HEAD.pack(6, len(load)) + load[:4000])) == []
    [large, small] = reader.feed(load[4000:] + HEAD.pack(Command.DEVICE_COUNT, 0))
    assert (large.command, large.payload, large.answer_size) == (6, b"", None)
    assert small.answer_size == 4


def test_a_tensor_is_as_large_as_its_request_says() -> None:
    request = Request(Command.GET_TENSOR, bytes(300) + struct.pack("<QQ", 5, 77))
    assert request.answer_size == 77
    assert substitute(request, DEVICES) == bytes(77)


@pytest.mark.parametrize("command", range(18))
def test_a_substitute_has_the_size_of_the_answer(command: int) -> None:
    request = Request(command, struct.pack("<I", 1))
    if command not in (Command.GET_TENSOR, Command.HELLO):
        assert len(substitute(request, DEVICES)) == (request.answer_size or 0)


def test_substitutes_name_the_limits_of_the_device_and_make_no_buffer() -> None:
    second = struct.pack("<I", 1)
    assert substitute(Request(Command.GET_ALIGNMENT, second), DEVICES) == struct.pack("<Q", 64)
    assert substitute(Request(Command.GET_MAX_SIZE, second), DEVICES) == struct.pack("<Q", 88)
    memory = substitute(Request(Command.GET_DEVICE_MEMORY, second), DEVICES)
    assert struct.unpack("<QQ", memory) == (30, 40)
    assert not any(substitute(Request(Command.ALLOC_BUFFER, bytes(12)), DEVICES))
    assert any(substitute(Request(Command.BUFFER_GET_BASE, bytes(8)), DEVICES))
    assert substitute(Request(Command.DEVICE_COUNT, b""), DEVICES) == struct.pack("<I", 2)


def test_no_faster_transport_is_offered() -> None:
    assert hello_answer()[8:12] == bytes([7, 0, 0, 0])
    assert not any(hello_answer()[12:])


def test_addresses_have_a_host_and_a_port() -> None:
    texts = ["10.0.0.2:50053", "worker.lan", "[::1]:7"]
    addresses = parse_addresses(texts)
    assert addresses[:2] == (Address("10.0.0.2", 50053), Address("worker.lan", 50052))
    assert str(addresses[2]) == "[::1]:7"


@pytest.mark.parametrize(
    "text", ["", ":5", "a:0", "a:65536", "a:b", "http://a:5", "a:5/x", "::1", "a b:5", "a:5:6"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_addresses([text])


def test_a_worker_is_named_once() -> None:
    with pytest.raises(ConfigError, match="there twice"):
        parse_addresses(["a:50052", "A"])
    with pytest.raises(ConfigError, match="at most 16"):
        parse_addresses([f"a:{port}" for port in range(1, 18)])
