"""Connections to servers over streamable HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from shepherd.errors import ConfigError
from shepherd.mcp.connection import Link
from shepherd.mcp.http.login import Login
from shepherd.mcp.settings.definition import Server
from shepherd.mcp.settings.secrets import ServerSecrets
from shepherd.mcp.stdio.process import MAX_MESSAGE_BYTES
from shepherd.mcp.stdio.transport import Quota, Streams, drop_output_schemas

_CONNECT_SECONDS = 30.0
_STREAM_SECONDS = 600.0
_CLOSE_SECONDS = 2.0


class _CappedTransport(httpx2.AsyncHTTPTransport):
    """Limits the length of answers that are not streams of events; those have a limit each."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            body = response.stream
            assert isinstance(body, httpx2.AsyncByteStream)
            response.stream = _Capped(body)
        return response


class _Capped(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._body:
            size += len(part)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError("the answer is too long")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def http_link(server: Server, secrets: ServerSecrets, login: Login) -> AsyncGenerator[Link]:
    """A connection to a server; raises ConfigError if it needs a login."""
    headers = await asyncio.to_thread(secrets.headers, server)
    has_token = any(name.lower() == "authorization" for name in headers)
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_STREAM_SECONDS)
    async with httpx2.AsyncClient(
        headers=headers,
        timeout=timeout,
        auth=None if has_token else await login.provider(),
        transport=_CappedTransport(),
    ) as http:
        wire = _HttpWire(server.definition.url, http)
        try:
            yield Link(wire.streams(), wire.closed, lambda: wire.problem or login.problem)
        except Exception as error:
            if login.problem:
                raise ConfigError(login.problem) from error
            raise


class _HttpWire:
    """The messages of one connection; a flood of them ends it."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self._url = url
        self._http = http

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        try:
            async with (
                streamable_http_client(
                    self._url, http_client=self._http, max_sse_event_size=MAX_MESSAGE_BYTES
                ) as (source, write),
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
                    drop_output_schemas(message.message)
                await incoming.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the connection ends
        finally:
            incoming.close()
            self.closed.set()
