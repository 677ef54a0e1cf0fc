"""Connections to servers over streamable HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from shepherd.errors import ConfigError
from shepherd.mcp.connection import Link, OtherTransportError
from shepherd.mcp.http.login import Login
from shepherd.mcp.settings.definition import Server
from shepherd.mcp.settings.secrets import ServerSecrets
from shepherd.mcp.stdio.process import MAX_MESSAGE_BYTES
from shepherd.mcp.stdio.transport import Quota, Streams, drop_output_schemas

_CONNECT_SECONDS = 30.0
_STREAM_SECONDS = 600.0
_CLOSE_SECONDS = 2.0
_OLDER_TRANSPORT = frozenset({400, 404, 405})


class _CappedTransport(httpx2.AsyncHTTPTransport):
    """Limits the length of answers, and of each event in a stream of them.

    `refuses_posts` is set by an answer with which servers of the older transport refuse a message.
    """

    refuses_posts = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if request.method == "POST" and response.status_code in _OLDER_TRANSPORT:
            self.refuses_posts = True
        body = response.stream
        assert isinstance(body, httpx2.AsyncByteStream)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _Capped(body, is_stream=is_stream)
        return response


class _Capped(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, *, is_stream: bool) -> None:
        self._body = body
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._body:
            ends_event = self._is_stream and (b"\n\n" in part or b"\n\r\n" in part)
            size = len(part) if ends_event else size + len(part)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError("the answer is too long")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def http_link(
    server: Server, secrets: ServerSecrets, login: Login, *, sse: bool
) -> AsyncGenerator[Link]:
    """A connection to a server, over HTTP+SSE or streamable HTTP.

    Raises ConfigError if it needs a login, and OtherTransportError if it needs HTTP+SSE.
    """
    headers = await asyncio.to_thread(secrets.headers, server)
    has_token = any(name.lower() == "authorization" for name in headers)
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_STREAM_SECONDS)
    transport = _CappedTransport()
    http = httpx2.AsyncClient(
        headers=headers,
        timeout=timeout,
        auth=None if has_token else await login.provider(),
        transport=transport,
    )
    async with nullcontext() if sse else http:  # the SDK's HTTP+SSE opens and closes the client
        wire = _HttpWire(server.definition.url, http, sse=sse)
        try:
            yield Link(wire.streams(), wire.closed, lambda: wire.problem or login.problem)
        except Exception as error:
            if login.problem:
                raise ConfigError(login.problem) from error
            if transport.refuses_posts and not sse and not wire.has_received:
                raise OtherTransportError from error
            raise


class _HttpWire:
    """The messages of one connection; a flood of them ends it."""

    def __init__(self, url: str, http: httpx2.AsyncClient, *, sse: bool) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self.has_received = False
        self._sse = sse
        self._url = url
        self._http = http

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        try:
            async with (
                self._transport() as (source, write),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._pass_on, source, incoming)
                try:
                    yield read, write
                finally:
                    self._http.timeout = httpx2.Timeout(_CLOSE_SECONDS)
                    tasks.cancel_scope.cancel()
        finally:
            incoming.close()
            read.close()
            self.closed.set()

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if not self._sse:
            return streamable_http_client(
                self._url, http_client=self._http, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        from mcp.client.sse import sse_client

        return sse_client(self._url, httpx_client_factory=self._own_client)

    def _own_client(self, *_options: object, **_more: object) -> httpx2.AsyncClient:
        """The client of this connection in place of the SDK's own."""
        return self._http

    async def _pass_on(
        self,
        source: AsyncIterator[SessionMessage | Exception],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        quota = Quota(asyncio.get_running_loop().time)
        try:
            async for message in source:
                if not quota.take():
                    self.problem = "it floods"
                    break
                if isinstance(message, SessionMessage):
                    self.has_received |= isinstance(message.message, JSONRPCResponse)
                    drop_output_schemas(message.message)
                await incoming.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the connection ends
        finally:
            incoming.close()
            self.closed.set()
