"""Connections that are kept for the next request."""

import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol, cast

import httpcore

from shepherd.backends.api.http.http1 import (
    Headers,
    Http1Answer,
    Http1Connection,
    Http1Request,
    origin_of,
    request_head,
)


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
        certificates.set_alpn_protocols(["http/1.1"])
        self._certificates = certificates
        self._network = network
        self._max_idle = max_idle
        self._expiry = expiry
        self._options = list(socket_options)
        self._idle: deque[Http1Connection] = deque()
        self._busy: set[Http1Connection] = set()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """The answer, before its body is read; raises httpcore's errors."""
        answer = await self.send(
            Http1Request(
                request.method,
                origin_of(request.url),
                request_head(request.method, request.url.target, request.headers),
                cast(AsyncIterable[bytes], request.stream),
                cast(Any, request).extensions.get("timeout", {}),
            )
        )
        return httpcore.Response(
            answer.status,
            headers=answer.headers,
            content=answer,
            extensions={"http_version": b"HTTP/1.1", "network_stream": answer.stream},
        )

    async def send(self, request: Http1Request) -> "PooledAnswer":
        """The answer, before its body is read; raises httpcore's errors."""
        connection = await self._take(request.origin)
        self._busy.add(connection)
        try:
            answer = await connection.send(request)
        except BaseException:
            self._busy.discard(connection)
            raise
        return PooledAnswer(answer, connection, self)

    async def aclose(self) -> None:
        """Close all connections, also if it is cancelled."""
        async with AsyncExitStack() as stack:
            for connection in (*self._idle, *self._busy):
                stack.push_async_callback(connection.aclose)
            self._idle.clear()
            self._busy.clear()

    async def release(self, connection: Http1Connection) -> None:
        """Keep the connection if its answer was read to the end; others are closed already."""
        if connection in self._busy:
            self._busy.remove(connection)
            if connection.idle:
                self._idle.append(connection)
        else:  # the pool was closed meanwhile
            await connection.aclose()

    async def _take(self, origin: httpcore.Origin) -> Http1Connection:
        """The connection that was used last, or a new one."""
        while self._idle:
            if len(self._idle) <= self._max_idle and not self._idle[0].has_expired():
                break
            await self._idle.popleft().aclose()
        for connection in reversed(self._idle):
            if connection.origin == origin:
                self._idle.remove(connection)
                if not connection.is_broken():
                    return connection
                await connection.aclose()
                return await self._take(origin)
        return Http1Connection(
            origin, self._certificates, self._network, self._expiry, self._options
        )


class PooledAnswer:
    """The answer of a pool; closing it releases its connection."""

    def __init__(
        self, answer: Http1Answer, connection: Http1Connection, pool: ConnectionPool
    ) -> None:
        self._answer = answer
        self._connection = connection
        self._pool = pool

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Headers:
        return self._answer.headers

    @property
    def stream(self) -> Any:
        """The connection, for its addresses and its certificate."""
        return self._connection.stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._answer)

    async def aclose(self) -> None:
        try:
            await self._answer.aclose()
        finally:
            await self._pool.release(self._connection)
