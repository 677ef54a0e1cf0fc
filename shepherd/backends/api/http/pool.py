"""Connections that are kept for the next request."""

import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol, cast

import httpcore

_SCHEMES = (b"http", b"https")


class RequestHandler(Protocol):
    """Sends requests over any number of connections, as httpcore's pools do."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """The answer, before its body is read; raises httpcore's errors."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class ConnectionPool:
    """Connections for one request at a time, of which at most `max_idle` are kept.

    httpcore's pool looks at each of its connections twice per request, which takes longer the more
    requests run at once. Here a request looks at two.
    """

    def __init__(
        self,
        certificates: ssl.SSLContext,
        network: httpcore.AsyncNetworkBackend,
        max_idle: int,
        expiry: float | None,
        socket_options: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """An idle connection is closed after `expiry` seconds, None for never."""
        self._certificates = certificates
        self._network = network
        self._max_idle = max_idle
        self._expiry = expiry
        self._options = list(socket_options)
        self._idle: deque[httpcore.AsyncHTTPConnection] = deque()
        self._busy: set[httpcore.AsyncHTTPConnection] = set()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """The answer, before its body is read; raises httpcore's errors."""
        if request.url.scheme not in _SCHEMES:
            scheme = request.url.scheme.decode("ascii", "replace")
            raise httpcore.UnsupportedProtocol(f"the protocol {scheme!r} is not supported")
        await self._close_old()
        connection = self._take(request.url.origin)
        self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self._release(connection)
            raise
        return httpcore.Response(
            response.status,
            headers=response.headers,
            content=_Body(response, lambda: self._release(connection)),
            extensions=cast(Any, response).extensions,  # partly untyped
        )

    async def aclose(self) -> None:
        """Close all connections."""
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            await connection.aclose()

    def _take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        """The connection that was used last, or a new one."""
        for connection in reversed(self._idle):
            if connection.can_handle_request(origin) and not connection.has_expired():
                self._idle.remove(connection)
                return connection
        return httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=self._certificates,
            keepalive_expiry=self._expiry,
            network_backend=self._network,
            socket_options=self._options,
        )

    async def _release(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep the connection if its answer was read to the end; close it otherwise."""
        if connection in self._busy:
            self._busy.remove(connection)
            if connection.is_idle():
                self._idle.append(connection)
            elif not connection.is_closed():
                await connection.aclose()

    async def _close_old(self) -> None:
        """Close the connections beyond the maximum, and those that idled for too long."""
        while self._idle and (len(self._idle) > self._max_idle or self._idle[0].has_expired()):
            await self._idle.popleft().aclose()


class _Body:
    """The body of a response, which releases its connection when it is closed."""

    def __init__(self, response: httpcore.Response, release: Callable[[], Awaitable[None]]) -> None:
        self._response = response
        self._release = release

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(cast(AsyncIterable[bytes], self._response.stream))

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            await self._release()
