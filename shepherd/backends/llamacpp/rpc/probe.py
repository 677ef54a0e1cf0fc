"""Addresses of RPC workers, and what a worker at one of them says about itself."""

import ipaddress
import re
import socket
import struct
from dataclasses import dataclass

from shepherd.backends.llamacpp.rpc.protocol import (
    HELLO_ANSWER_SIZE,
    HELLO_REQUEST,
    MAJOR,
    MAX_DEVICES,
    MINOR,
    SIZE,
    Command,
    WorkerDevice,
    device_request,
    request,
)
from shepherd.errors import ConfigError, ModelLoadError

DEFAULT_PORT = 50052
"""The port of llama.cpp's own `rpc-server`."""

MAX_WORKERS = 16

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+)(?::(\d{1,5}))?", re.ASCII)

PROBE_TIMEOUT = 5.0
"""Seconds for the connection, and for each answer. A worker serves one program at a time."""


@dataclass(frozen=True, slots=True)
class Address:
    """The host and the port of a worker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address of a worker, by default with llama.cpp's port; raises ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    port = DEFAULT_PORT if match is None or match[2] is None else int(match[2])
    if match is None or not 0 < port < 65536:
        raise ConfigError(
            f"llamacpp.rpc_servers: {text!r} is not an address. Write HOST:PORT, "
            f"such as 192.168.1.20:{DEFAULT_PORT}."
        )
    return Address(match[1].strip("[]").lower(), port)


def parse_addresses(texts: list[str]) -> tuple[Address, ...]:
    """The addresses of all workers; raises ConfigError for a wrong or repeated one."""
    addresses = tuple(map(parse_address, texts))
    if len(addresses) > MAX_WORKERS:
        raise ConfigError(f"llamacpp.rpc_servers: at most {MAX_WORKERS} workers share a model.")
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise ConfigError(f"llamacpp.rpc_servers: {address} is there twice.")
    return addresses


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class WorkerInfo:
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
    if major != MAJOR or minor > MINOR:
        connection.close()
        raise WorkerError(
            f"The RPC worker at {address} speaks version {major}.{minor} of the protocol, and "
            f"this Shepherd {MAJOR}.{MINOR}. Install the same version of Shepherd on both."
        )
    return connection


def _devices(connection: socket.socket) -> list[WorkerDevice]:
    connection.sendall(request(Command.DEVICE_COUNT))
    count = int.from_bytes(_answer(connection, 4), "little")
    if not 0 < count <= MAX_DEVICES:
        raise ConnectionError(f"it names {count} devices")
    return [_device(connection, index) for index in range(count)]


def _device(connection: socket.socket, index: int) -> WorkerDevice:
    def numbers(command: Command, count: int) -> tuple[int, ...]:
        connection.sendall(device_request(command, index))
        return struct.unpack(f"<{count}Q", _answer(connection, count * SIZE.size))

    free, total = numbers(Command.GET_DEVICE_MEMORY, 2)
    [alignment] = numbers(Command.GET_ALIGNMENT, 1)
    [max_size] = numbers(Command.GET_MAX_SIZE, 1)
    if alignment.bit_count() != 1:
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
