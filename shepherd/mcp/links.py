"""Makes the connections of servers, over pipes or HTTP, and limits what comes through them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from shepherd.errors import ConfigError
from shepherd.mcp.connection import Connection, Host, Link, OtherTransportError, Streams
from shepherd.mcp.login import Login
from shepherd.mcp.process import MAX_MESSAGE_BYTES, Launcher, ServerProcess
from shepherd.mcp.questions import Questions, Sampler
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Server
from shepherd.tools.invisible import reveal
from shepherd.tools.text import one_line, plain_text

MAX_MALFORMED = 20
"""Lines of one connection that are not messages; after more, it is given up."""
MESSAGES_PER_SECOND = 500
MAX_BURST = 2000
"""Messages at once; a server that goes on to send more than this per second is ended."""

_SHOWN = 80
_CONNECT_SECONDS = 30.0
_STREAM_SECONDS = 600.0
_CLOSE_SECONDS = 2.0
_OLDER_TRANSPORT = frozenset({400, 404, 405})

Warn = Callable[[str], None]


def new_connection(
    server: Server,
    launcher: Launcher,
    warn: Warn,
    changed: Callable[[], None],
    sampler: Callable[[], Sampler | None],
) -> Connection:
    """A connection to a server, which is not started yet."""
    silence_sdk()
    link = partial(_link, server, launcher, warn, _Remote(server.definition.type == "sse"))
    questions = Questions(server.name, sampler)
    secrets = partial(launcher.secrets.values, server)
    roots = (launcher.root.as_uri(),)
    return Connection(server, link, Host(warn, changed, questions, secrets, roots))


@dataclass(slots=True)
class _Remote:
    """The transport of a server that speaks HTTP: the older HTTP+SSE, or streamable HTTP."""

    sse: bool


@asynccontextmanager
async def _link(
    server: Server, launcher: Launcher, warn: Warn, remote: _Remote
) -> AsyncGenerator[Link]:
    if server.definition.url:
        login = Login(server, launcher.secrets)
        try:
            async with http_link(server, launcher.secrets, login, sse=remote.sse) as link:
                yield link
        except OtherTransportError:
            remote.sse = True
            raise
        return
    async with launcher.started(server, warn) as process:
        wire = Wire(process, warn)

        def problem() -> str:
            last = reveal(plain_text(process.last_words))[:200]
            words = f"its last words: {last}" if last else ""
            return "; ".join(filter(None, [wire.problem, words])) or "its process has ended"

        yield Link(wire.streams(), wire.closed, problem)


class Quota:
    """Counts messages: `MAX_BURST` at once, and `MESSAGES_PER_SECOND` on average."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(MAX_BURST)
        self._last = clock()

    def take(self) -> bool:
        """Count one message; False if there are too many."""
        now = self._clock()
        self._left = min(MAX_BURST, self._left + (now - self._last) * MESSAGES_PER_SECOND)
        self._last = now
        self._left -= 1
        return self._left >= 0


class Wire:
    """One connection's messages; `problem` is set when it breaks, and then `closed`."""

    def __init__(self, process: ServerProcess, warn: Warn) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self._process = process
        self._warn = warn
        self._malformed = 0
        self._quota = Quota(asyncio.get_running_loop().time)

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        """The streams that the SDK reads and writes."""
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._receive, incoming)
                tasks.start_soon(self._send, outgoing)
                try:
                    yield read, write
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (incoming, read, write, outgoing):
                stream.close()
            self.closed.set()

    async def _receive(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        try:
            while line := await self._process.read_line():
                message = self._parsed(line)
                if self.problem:
                    break
                if message is not None:
                    await incoming.send(SessionMessage(message))
        except ValueError:
            self.problem = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the connection ends
        finally:
            incoming.close()
            self.closed.set()

    def _parsed(self, line: bytes) -> types.JSONRPCMessage | None:
        """The message in a line; None for an empty or wrong line."""
        if not line.strip():
            return None
        if not self._quota.take():
            self.problem = f"it floods: more than {MESSAGES_PER_SECOND} messages per second"
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._count_malformed(line)
            return None
        drop_output_schemas(message)
        return message

    def _count_malformed(self, line: bytes) -> None:
        self._malformed += 1
        if self._malformed == 1:
            text = one_line(line[: 4 * _SHOWN].decode("utf-8", "replace").strip())[:_SHOWN]
            self._warn(f"wrote a line that is not a message, which is ignored: {text}")
        if self._malformed > MAX_MALFORMED:
            self.problem = f"more than {MAX_MALFORMED} of its lines are not messages"

    async def _send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.write_line(text.encode())
        except OSError:
            self.problem = self.problem or "it does not read its stdin"
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the connection ends
        finally:
            outgoing.close()


def drop_output_schemas(message: types.JSONRPCMessage) -> None:
    """Remove the schemas of results: the SDK would run their regular expressions."""
    if not isinstance(message, types.JSONRPCResponse):
        return
    tools = message.result.get("tools")
    for tool in cast(list[Any], tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            cast(dict[str, Any], tool).pop("outputSchema", None)


def silence_sdk() -> None:
    """Keep the SDK's log out of the terminal, unless a handler is set up for it."""
    logger = logging.getLogger("mcp")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


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
