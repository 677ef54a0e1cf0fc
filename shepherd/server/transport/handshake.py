"""TLS handshakes, which count as connections and have a time limit."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from shepherd.server.settings import ServerSettings
from shepherd.server.transport.table import ConnectionTable

SHUTDOWN_SECONDS = 5.0
"""The time in which a client answers the end of the encryption."""


class TlsHandshake(asyncio.Protocol):
    """A connection until its handshake has ended; `make_protocol` then serves it.

    asyncio's own TLS tells a protocol of a connection only after the handshake. Clients that never
    finish one would escape the limits.
    """

    idle = True

    def __init__(
        self,
        context: ssl.SSLContext,
        settings: ServerSettings,
        table: ConnectionTable,
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self.address = ""
        self._context = context
        self._settings = settings
        self._table = table
        self._make_protocol = make_protocol
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake if there is room for the connection."""
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.pause_reading()  # until asyncio's TLS reads
        peer = cast(tuple[str, int] | None, transport.get_extra_info("peername"))
        self.address = peer[0] if peer else ""
        if not self._table.admit(self):
            stream.abort()
            return
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(stream))

    def check(self, now: float) -> None:
        """The handshake has a limit of its own."""

    def close_idle(self) -> None:
        """Close it to admit another connection."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        early = _EarlyData()
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._settings.read_timeout,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError:  # also ssl.SSLError and a time limit
            transport.abort()
            return
        finally:
            self._table.remove(self)
        if encrypted is None or early.lost:
            return
        protocol = self._make_protocol()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if early.received:
            protocol.data_received(bytes(early.received))


class _EarlyData(asyncio.Protocol):
    """Keeps what arrives with the end of the handshake."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        """Keep the data for the protocol that follows."""
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no protocol needs to follow."""
        self.lost = True
