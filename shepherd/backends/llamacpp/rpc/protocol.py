"""The protocol of llama.cpp's RPC backend, as far as a relay must understand it.

A request is a command (1 byte), a size (8 bytes) and a payload. Some commands have an answer: a
size (8 bytes) and a payload. Source: `ggml-rpc.cpp` of llama-cpp-python 0.3.36.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

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
_BASE = 1 << 20


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


_ANSWER_SIZES = {
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


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """A device of a worker: bytes of memory, and the limits of its buffers."""

    free: int
    total: int
    alignment: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the payload is empty if it is large."""

    command: int
    payload: bytes

    @property
    def answer_size(self) -> int | None:
        """The size of the answer's payload in bytes; None if there is no answer."""
        if self.command == Command.GET_TENSOR:
            return SIZE.unpack(self.payload[-SIZE.size :])[0] if self.payload else 0
        return next((size for name, size in _ANSWER_SIZES.items() if name == self.command), None)


class RequestReader:
    """Finds the requests in a stream of bytes."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0
        self._command = 0
        self._kept: bytearray | None = None

    def feed(self, data: bytes) -> Iterator[Request]:
        """Yields the requests that end in `data`."""
        view, at = memoryview(data), 0
        while at < len(view) or (len(self._head) == _HEAD.size and not self._missing):
            if len(self._head) < _HEAD.size:
                part = view[at : at + _HEAD.size - len(self._head)]
                at += len(part)
                self._head += part
                if len(self._head) == _HEAD.size:
                    self._command, self._missing = _HEAD.unpack(self._head)
                    self._kept = bytearray() if self._missing <= _KEPT_PAYLOAD else None
                continue
            part = view[at : at + self._missing]
            at += len(part)
            self._missing -= len(part)
            if self._kept is not None:
                self._kept += part
            if not self._missing:
                self._head = b""
                yield Request(self._command, bytes(self._kept or b""))


def request(command: Command, payload: bytes = b"") -> bytes:
    """The bytes of a request."""
    return _HEAD.pack(command, len(payload)) + payload


def device_request(command: Command, device: int) -> bytes:
    """The bytes of a request about a device."""
    return request(command, _DEVICE.pack(device))


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
    size = message.answer_size or 0
    match message.command:
        case Command.GET_ALIGNMENT:
            return SIZE.pack(_device(message, devices).alignment)
        case Command.GET_MAX_SIZE:
            return SIZE.pack(_device(message, devices).max_size)
        case Command.GET_DEVICE_MEMORY:
            device = _device(message, devices)
            return _MEMORY.pack(device.free, device.total)
        case Command.BUFFER_GET_BASE:
            return SIZE.pack(_BASE)
        case Command.SET_TENSOR_HASH | Command.COPY_TENSOR:
            return b"\1"  # as if the data were there already
        case Command.DEVICE_COUNT:
            return _DEVICE.pack(len(devices))
        case _:
            return bytes(size)


def _device(message: Request, devices: Sequence[WorkerDevice]) -> WorkerDevice:
    index: int = _DEVICE.unpack(message.payload)[0]
    return devices[index] if index < len(devices) else WorkerDevice(0, 0, 1, 1)
