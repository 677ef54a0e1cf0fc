"""A worker over real TCP that speaks the protocol, and fails when it is ordered to."""

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from shepherd.backends.llamacpp.rpc.protocol import (
    HELLO_ANSWER_SIZE,
    MAJOR,
    SIZE,
    Address,
    Command,
    receive_exactly,
)

HEAD = struct.Struct("<BQ")
FREE, TOTAL, ALIGNMENT, MAX_SIZE = 3000, 4000, 64, 5000


class ScriptedWorker:
    """Serves one connection after the other; buffers exist only by name."""

    def __init__(self) -> None:
        self.major = MAJOR
        self.devices = 2
        self.silent_after: int | None = None
        """The command after which it never answers again."""
        self.closes_after: int | None = None
        self.wrong_size_of: int | None = None
        self.received: list[tuple[int, bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._client: socket.socket | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and close the connection."""
        with suppress(OSError):  # a second time
            self._listener.shutdown(socket.SHUT_RDWR)  # also for the thread that accepts
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection."""
        if self._client is not None:
            with suppress(OSError):  # it is closed already
                self._client.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while True:
            try:
                self._client, _ = self._listener.accept()
            except OSError:
                return
            with self._client:
                try:
                    self._serve(self._client)
                except OSError:
                    continue

    def _serve(self, client: socket.socket) -> None:
        is_silent = False
        while True:
            command, size = HEAD.unpack(receive_exactly(client, HEAD.size))
            payload = receive_exactly(client, size)
            self.received.append((command, payload))
            if command == self.closes_after:
                return
            is_silent = is_silent or command == self.silent_after
            answer = None if is_silent else self._answer(command, payload)
            if answer is not None:
                extra = 1 if command == self.wrong_size_of else 0
                client.sendall(SIZE.pack(len(answer) + extra) + answer)

    def _answer(self, command: int, payload: bytes) -> bytes | None:
        match command:
            case Command.HELLO:
                return bytes([self.major]).ljust(HELLO_ANSWER_SIZE, b"\0")
            case Command.DEVICE_COUNT:
                return struct.pack("<I", self.devices)
            case Command.GET_DEVICE_MEMORY:
                return struct.pack("<QQ", FREE, TOTAL)
            case Command.GET_ALIGNMENT:
                return SIZE.pack(ALIGNMENT)
            case Command.GET_MAX_SIZE:
                return SIZE.pack(MAX_SIZE)
            case Command.GET_TENSOR:
                return b"x" * SIZE.unpack(payload[-8:])[0]
            case Command.ALLOC_BUFFER:
                return struct.pack("<QQ", 7, 7)
            case _:
                return None


@contextmanager
def scripted_worker() -> Generator[ScriptedWorker]:
    """A worker that is closed behind the block."""
    worker = ScriptedWorker()
    try:
        yield worker
    finally:
        worker.close()
