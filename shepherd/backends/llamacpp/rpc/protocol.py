"""The protocol of llama.cpp's RPC backend, as far as a relay must understand it.

A request is a command (1 byte), a size (8 bytes) and a payload. Some commands have an answer: a
size (8 bytes) and a payload. Source: `ggml-rpc.cpp` of llama-cpp-python 0.3.36.
"""

import re
import socket
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct

from shepherd.errors import ConfigError, ModelLoadError

MAJOR, MINOR = 7, 0
"""The version of the protocol. A relay refuses any other one, because it could not follow it."""

CAPABILITIES = 24
"""Bytes about faster transports. They stay 0: a relay can't follow RDMA."""

MAX_DEVICES = 16
"""The devices of one worker; llama.cpp has the same limit (`GGML_RPC_MAX_SERVERS`)."""

SIZE = struct.Struct("<Q")
_HEAD = struct.Struct("<BQ")
_DEVICE = struct.Struct("<I")
_MEMORY = struct.Struct("<QQ")
_KEPT_PAYLOAD = 1024
"""Bytes of a payload that are read here; a larger one is the data of a tensor."""

_BASE = 1 << 20
"""The address of a buffer that does not exist: llama.cpp adds offsets to it, and nothing else."""


class Command(IntEnum):
    """The commands that a relay knows by name."""

    ALLOC_BUFFER = 0
    GET_ALIGNMENT = 1
    GET_MAX_SIZE = 2
    BUFFER_GET_BASE = 3
    SET_TENSOR_HASH = 7
    GET_TENSOR = 8
    COPY_TENSOR = 9
    GET_DEVICE_MEMORY = 11
    GET_ALLOC_SIZE = 13
    HELLO = 14
    DEVICE_COUNT = 15


_ANSWER_SIZES: dict[int, int] = {
    Command.ALLOC_BUFFER: 16,
    Command.GET_ALIGNMENT: 8,
    Command.GET_MAX_SIZE: 8,
    Command.BUFFER_GET_BASE: 8,
    Command.SET_TENSOR_HASH: 1,
    Command.COPY_TENSOR: 1,
    Command.GET_DEVICE_MEMORY: 16,
    Command.GET_ALLOC_SIZE: 8,
    Command.DEVICE_COUNT: 4,
}


class WorkerDevice(Struct, frozen=True):
    """A device of a worker: bytes of memory, and the limits of its buffers."""

    free: int
    total: int
    alignment: int
    max_size: int


class Request(Struct, frozen=True):
    """A request; the payload is empty if it is large."""

    command: int
    payload: bytes

    @property
    def answer_size(self) -> int | None:
        """The size of the answer's payload in bytes; None if there is no answer."""
        if self.command == Command.GET_TENSOR:  # the request ends with the size that it asks for
            return SIZE.unpack(self.payload[-SIZE.size :])[0] if self.payload else 0
        return _ANSWER_SIZES.get(self.command)


class RequestReader:
    """Finds the requests in a stream of bytes."""

    def __init__(self) -> None:
        self._head = b""
        self._missing_payload = 0
        """Bytes of the payload that have not come yet."""
        self._command = 0
        self._payload: bytearray | None = None
        """What has come of the payload; None for one that is too large to be kept."""

    def feed(self, data: bytes) -> Iterator[Request]:
        """Yields the requests that end in `data`."""
        view, at = memoryview(data), 0
        # A request without a payload ends with its head, also at the end of `data`.
        while at < len(view) or (len(self._head) == _HEAD.size and not self._missing_payload):
            if len(self._head) < _HEAD.size:
                part = view[at : at + _HEAD.size - len(self._head)]
                at += len(part)
                self._head += part
                if len(self._head) == _HEAD.size:
                    self._command, size = _HEAD.unpack(self._head)
                    self._missing_payload = size
                    self._payload = bytearray() if size <= _KEPT_PAYLOAD else None
                continue
            part = view[at : at + self._missing_payload]
            at += len(part)
            self._missing_payload -= len(part)
            if self._payload is not None:
                self._payload += part
            if not self._missing_payload:
                self._head = b""
                yield Request(self._command, bytes(self._payload or b""))


def request(command: Command, payload: bytes = b"") -> bytes:
    """The bytes of a request."""
    return _HEAD.pack(command, len(payload)) + payload


HELLO_REQUEST = request(Command.HELLO, bytes(CAPABILITIES))
HELLO_ANSWER_SIZE = 4 + CAPABILITIES


def hello_answer() -> bytes:
    """The answer to the first request of a connection, with its size."""
    return SIZE.pack(HELLO_ANSWER_SIZE) + bytes([MAJOR, MINOR, 0, 0]) + bytes(CAPABILITIES)


def substitute(message: Request, devices: Sequence[WorkerDevice]) -> bytes:
    """A harmless answer for a worker that can't answer any more, without its size.

    llama.cpp ends the whole process if an answer is missing. Nothing is computed with these
    answers: buffers can't be made, and tensors are zeros.
    """
    match message.command:
        case Command.GET_ALIGNMENT:
            return SIZE.pack(_named_device(message, devices).alignment)
        case Command.GET_MAX_SIZE:
            return SIZE.pack(_named_device(message, devices).max_size)
        case Command.GET_DEVICE_MEMORY:
            device = _named_device(message, devices)
            return _MEMORY.pack(device.free, device.total)
        case Command.BUFFER_GET_BASE:
            return SIZE.pack(_BASE)
        case Command.SET_TENSOR_HASH | Command.COPY_TENSOR:
            return b"\1"  # as if the data were there already
        case Command.DEVICE_COUNT:
            return _DEVICE.pack(len(devices))
        case _:
            return bytes(message.answer_size or 0)


def _named_device(message: Request, devices: Sequence[WorkerDevice]) -> WorkerDevice:
    """The device that a request names; one without memory if the worker has none of its number."""
    index: int = _DEVICE.unpack(message.payload)[0]
    return devices[index] if index < len(devices) else WorkerDevice(0, 0, 1, 1)


DEFAULT_PORT = 50052
"""The port of llama.cpp's own `rpc-server`."""

MAX_WORKERS = 16

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+)(?::(?P<port>\d{1,5}))?", re.ASCII)

PROBE_TIMEOUT = 5.0
"""Seconds for the connection, and for each answer. A worker serves one program at a time."""


class Address(Struct, frozen=True):
    """The host and the port of a worker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address of a worker, by default with llama.cpp's port; raises ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    port = DEFAULT_PORT
    if match is not None and match["port"] is not None:
        port = int(match["port"])
    if match is None or not 0 < port < 65536:
        raise ConfigError(
            f"llamacpp.rpc_servers: {text!r} is not an address. Write HOST:PORT, "
            f"such as 192.168.1.20:{DEFAULT_PORT}."
        )
    # An IPv6 address has brackets.
    return Address(match["host"].strip("[]").lower(), port)


def parse_addresses(texts: list[str]) -> tuple[Address, ...]:
    """The addresses of all workers; raises ConfigError for a wrong or repeated one."""
    addresses = tuple(map(parse_address, texts))
    if len(addresses) > MAX_WORKERS:
        raise ConfigError(f"llamacpp.rpc_servers: at most {MAX_WORKERS} workers share a model.")
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise ConfigError(f"llamacpp.rpc_servers: {address} is there twice.")
    return addresses


class WorkerInfo(Struct, frozen=True):
    """A worker and its devices."""

    address: Address
    devices: tuple[WorkerDevice, ...]


class WorkerError(ModelLoadError):
    """A worker can't be reached, or is not one; the message names it and says what to do."""


def probe(address: Address, timeout: float = PROBE_TIMEOUT) -> WorkerInfo:
    """Ask a worker for its devices; raises WorkerError."""
    try:
        with connect(address, timeout) as connection:
            return WorkerInfo(address, tuple(_devices(connection)))
    except TimeoutError as error:
        raise WorkerError(
            f"The RPC worker at {address} does not answer. It hangs, or serves another program: "
            "a worker serves one program at a time."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise WorkerError(
            f"The RPC worker at {address} can't be reached: {reason}. Start `shepherd rpc-worker` "
            "there, or remove the address from llamacpp.rpc_servers."
        ) from error


def connect(address: Address, timeout: float) -> socket.socket:
    """A connection after the first exchange; raises OSError, or WorkerError for another version."""
    connection = socket.create_connection((address.host, address.port), timeout)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(HELLO_REQUEST)
        major, minor = _answer(connection, HELLO_ANSWER_SIZE)[:2]
    except BaseException:
        connection.close()
        raise
    if major != MAJOR or minor > MINOR:  # a later one may have messages that a relay can't follow
        connection.close()
        raise WorkerError(
            f"The RPC worker at {address} speaks version {major}.{minor} of the protocol, and "
            f"this Shepherd {MAJOR}.{MINOR}. Install the same version of Shepherd on both."
        )
    return connection


def _devices(connection: socket.socket) -> list[WorkerDevice]:
    """All devices of the worker; raises ConnectionError for an impossible number of them."""
    connection.sendall(request(Command.DEVICE_COUNT))
    count = int.from_bytes(_answer(connection, 4), "little")
    if not 0 < count <= MAX_DEVICES:
        raise ConnectionError(f"it names {count} devices")
    return [_described_device(connection, index) for index in range(count)]


def _described_device(connection: socket.socket, index: int) -> WorkerDevice:
    """A device, as the worker describes it; raises ConnectionError if that makes no sense."""

    def numbers(command: Command, count: int) -> tuple[int, ...]:
        connection.sendall(request(command, _DEVICE.pack(index)))
        return struct.unpack(f"<{count}Q", _answer(connection, count * SIZE.size))

    free, total = numbers(Command.GET_DEVICE_MEMORY, 2)
    [alignment] = numbers(Command.GET_ALIGNMENT, 1)
    [max_size] = numbers(Command.GET_MAX_SIZE, 1)
    if alignment.bit_count() != 1:  # it is no power of two
        raise ConnectionError(f"it names an alignment of {alignment}")
    return WorkerDevice(free, total, alignment, max_size)


def _answer(connection: socket.socket, size: int) -> bytes:
    """The payload of an answer; raises ConnectionError if it does not have this size."""
    announced = SIZE.unpack(receive_exactly(connection, SIZE.size))[0]
    if announced != size:
        raise ConnectionError("it is not an RPC worker of this version of llama.cpp")
    return receive_exactly(connection, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; raises ConnectionError if the connection ends before."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError(
                "it closed the connection; is it an RPC worker of this version of llama.cpp?"
            )
        data += part
    return data
