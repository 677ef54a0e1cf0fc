"""Connections on asyncio's own transports.

An answer arrives in thousands of small pieces, and each one runs the code between socket and
reader. Here a piece does not change the selector, and without a time-out it does not set a timer.
"""

import asyncio
import os
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpcore

MAX_UNREAD = 256 * 1024
"""Bytes that are received ahead of the reader; beyond them the sender must wait."""

MAX_HELD = 32 * 1024
"""A larger buffer, in bytes, is sent at once, and its writer waits until most of it has left."""

NEXT_ADDRESS = 0.25
"""Seconds until the next address of a silent host is tried in parallel (RFC 8305)."""

_NUMBER = re.compile(r"\[Errno (\d+)\]")


class Network(httpcore.AsyncNetworkBackend):
    """Opens connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's addresses that answers.

        Raises ConnectError and ConnectTimeout.
        """
        local = None if local_address is None else (local_address, 0)
        async with _raised(httpcore.ConnectError, httpcore.ConnectTimeout, timeout):
            transport, inbox = await asyncio.get_running_loop().create_connection(
                Inbox, host, port, local_addr=local, happy_eyeballs_delay=NEXT_ADDRESS
            )
            connection: socket.socket = transport.get_extra_info("socket")
            for option in socket_options or ():
                connection.setsockopt(*option)
        return Connection(transport, inbox)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Inbox(asyncio.Protocol):
    """The received bytes of a connection that were not read yet."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self.may_write = True
        self.lost = False
        self.error: OSError | None = None

    @property
    def empty(self) -> bool:
        """Whether a read would have to wait."""
        return not (self._pieces or self._ended)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._unread += len(data)
        if self._unread > MAX_UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """True, so that pending data can be sent; TLS closes both directions at once."""
        self._ended = True
        _wake(self._reader)
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self.lost = True
        self.error = exc if exc is None or isinstance(exc, OSError) else OSError(str(exc))
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        _wake(self._writer)

    async def arrival(self) -> None:
        """Wait for more bytes, or for the end."""
        while self.empty:
            self._reader = self._loop.create_future()
            await self._reader

    async def room(self) -> None:
        """Wait until most of the written bytes are sent."""
        while not (self.may_write or self.lost):
            self._writer = self._loop.create_future()
            await self._writer

    def take(self, max_bytes: int) -> bytes:
        """The next piece, up to `max_bytes`; b"" at the end. Raises the connection's error."""
        if not self._pieces:
            if self.error is not None:
                raise self.error
            return b""
        data = self._pieces.popleft()
        if len(data) > max_bytes:
            self._pieces.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._unread -= len(data)
        if self._paused and self._unread <= MAX_UNREAD // 2:
            self._paused = False
            if not self.lost:
                self._transport.resume_reading()
        return data


class Connection(httpcore.AsyncNetworkStream):
    """One open connection; one task may read it and one may write it at a time."""

    def __init__(self, transport: asyncio.Transport, inbox: Inbox) -> None:
        self._transport = transport
        self._inbox = inbox
        self._held: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The received bytes, b"" at the end; raises ReadError and ReadTimeout."""
        inbox = self._inbox
        try:
            if inbox.empty:
                async with asyncio.timeout(timeout):
                    await inbox.arrival()
        except TimeoutError as error:
            raise httpcore.ReadTimeout(_late(timeout)) from error
        try:
            return inbox.take(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(in_words(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send; raises WriteError and WriteTimeout.

        Small buffers that follow each other at once, a request's head and body, are sent together:
        in the next turn of the event loop, or by `flush`.
        """
        inbox = self._inbox
        if inbox.lost or self._transport.is_closing():
            raise httpcore.WriteError(
                in_words(inbox.error or ConnectionResetError("it was closed"))
            )
        if not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held.append(buffer)
        if len(buffer) <= MAX_HELD and inbox.may_write:
            return
        self.flush()
        async with _raised(httpcore.WriteError, httpcore.WriteTimeout, timeout):
            await inbox.room()

    def flush(self) -> None:
        """Send the buffers that are held."""
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))

    async def aclose(self) -> None:
        """Close at once, even in the middle of an answer, and without waiting for a TLS peer."""
        self._transport.close()
        try:
            await asyncio.sleep(0)
        finally:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The same connection, encrypted from here on; raises ConnectError and ConnectTimeout."""
        inbox = Inbox()
        try:
            async with _raised(httpcore.ConnectError, httpcore.ConnectTimeout, timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    self._transport, inbox, ssl_context, server_hostname=server_hostname
                )
        except BaseException:
            self._transport.abort()
            raise
        if transport is None:
            raise httpcore.ConnectError("it was closed")
        inbox.connection_made(transport)
        return Connection(transport, inbox)

    def get_extra_info(self, info: str) -> Any:
        """The information that httpcore requests by these names; None for any other."""
        if info == "is_readable":
            closing = self._transport.is_closing() or not self._inbox.empty
            return closing or _readable(self._transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        name = names.get(info, info)
        known = name in ("ssl_object", "socket", *names.values())
        return self._transport.get_extra_info(name) if known else None


def in_words(error: OSError) -> str:
    """The system's text for an error, without numbers.

    asyncio joins the errors of several addresses into one text.
    """
    if isinstance(error, (ssl.SSLError, socket.gaierror)):
        return str(error.strerror or error)
    numbers = [error.errno] if error.errno else map(int, _NUMBER.findall(str(error)))
    return ", ".join(dict.fromkeys(map(os.strerror, numbers))) or str(error)


@asynccontextmanager
async def _raised(
    broken: type[Exception], late: type[Exception], timeout: float | None
) -> AsyncGenerator[None]:
    """Raises these errors for the system's errors and after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as error:
        raise late(_late(timeout)) from error
    except OSError as error:
        raise broken(in_words(error)) from error


def _late(timeout: float | None) -> str:
    return "no answer" if timeout is None else f"no answer within {timeout:g} s"


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _readable(connection: socket.socket) -> bool:
    """Whether bytes or the end are ready to read; True for a closed connection."""
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
