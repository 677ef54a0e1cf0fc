"""Makes the connections of servers, over pipes or HTTP, and limits what comes through them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from shepherd import errors, json_text
from shepherd.mcp.connection import Connection, Host, Link, OtherTransportError, Streams
from shepherd.mcp.login import Login
from shepherd.mcp.process import MAX_MESSAGE_BYTES, Launcher, ServerProcess
from shepherd.mcp.questions import Questions, Sampler
from shepherd.mcp.servers import Server, ServerStatus, Warn
from shepherd.tools.text import one_line, plain_text, reveal

MAX_MALFORMED = 20
"""Lines of one connection that are not messages; after more, it is given up."""
MESSAGES_PER_SECOND = 500
MAX_BURST = 2000
"""Messages at once; a server that goes on to send more than this per second is ended."""

_MAX_SHOWN = 80
_CONNECT_SECONDS = 30.0
_STREAM_SECONDS = 600.0
_CLOSE_SECONDS = 2.0
_OLDER_TRANSPORT = frozenset({400, 404, 405})


def new_connection(
    status: ServerStatus,
    launcher: Launcher,
    warn: Warn,
    changed: Callable[[], None],
    sampler: Callable[[], Sampler | None],
) -> Connection:
    """A connection to a server, which is not started yet and keeps `status`."""
    server = status.server
    questions = Questions(server.name, sampler)
    secrets = partial(launcher.secrets.values, server)
    roots = (launcher.root.as_uri(),)
    links = _Links(server, launcher, warn)
    return Connection(status, links.open, Host(warn, changed, questions, secrets, roots))


class _Links:
    """Opens connections to one server, one after the other."""

    def __init__(self, server: Server, launcher: Launcher, warn: Warn) -> None:
        self._server = server
        self._launcher = launcher
        self._warn = warn
        self._uses_sse = server.definition.type == "sse"
        """Whether it speaks the older HTTP+SSE; a server of streamable HTTP may refuse once."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Link]:
        """One connection.

        Raises ConfigError if it must not or can't be opened, and OtherTransportError if the next
        attempt uses another transport.
        """
        if self._server.definition.url:
            login = Login(self._server, self._launcher.secrets)
            try:
                async with self._http_link(login) as link:
                    yield link
            except OtherTransportError:
                self._uses_sse = True  # from the next attempt on
                raise
            return
        async with self._launcher.started(self._server, self._warn) as process:
            wire = _PipeWire(process, self._warn)

            def problem() -> str:
                last_line = reveal(plain_text(process.log.last_line))[:200]
                words = f"its last words: {last_line}" if last_line else ""
                return "; ".join(filter(None, [wire.problem, words])) or "its process has ended"

            yield Link(wire.streams(), wire.closed, problem)

    @asynccontextmanager
    async def _http_link(self, login: Login) -> AsyncGenerator[Link]:
        """A connection over HTTP; raises as `open` does."""
        headers = await asyncio.to_thread(self._launcher.secrets.headers, self._server)
        # a token of the user's own takes the place of a login
        has_token = any(name.lower() == "authorization" for name in headers)
        transport = _CappedTransport()
        http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_STREAM_SECONDS),
            auth=None if has_token else await login.provider(),
            transport=transport,
        )
        sse = self._uses_sse
        async with nullcontext() if sse else http:  # the SDK's HTTP+SSE opens and closes the client
            wire = _HttpWire(self._server.definition.url, http, sse=sse)
            try:
                yield Link(wire.streams(), wire.closed, lambda: wire.problem or login.problem)
            except Exception as error:
                if login.problem:  # only the user can help
                    raise errors.ConfigError(login.problem) from error
                # a server that has answered before speaks this transport
                if transport.refuses_posts and not sse and not wire.has_received:
                    raise OtherTransportError from error
                raise


class Quota:
    """Counts messages: `MAX_BURST` at once, and `MESSAGES_PER_SECOND` on average."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._messages_left = float(MAX_BURST)
        self._counted_at = clock()

    def take(self) -> bool:
        """Count one message; False if there are too many."""
        now = self._clock()
        allowed_since = (now - self._counted_at) * MESSAGES_PER_SECOND
        self._messages_left = min(MAX_BURST, self._messages_left + allowed_since) - 1
        self._counted_at = now
        return self._messages_left >= 0


Messages = AsyncIterator[SessionMessage | Exception]


class _Wire:
    """The messages of one connection; `problem` is set when it breaks, and then `closed`."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self.has_received = False
        """Whether the server has answered a request."""

    def _transport(self) -> AbstractAsyncContextManager[tuple[Messages, Any]]:
        """What the server sends, and the SDK's stream for what is sent to it."""
        raise NotImplementedError

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        """The streams that the SDK reads and writes."""
        # the SDK gets each message when it asks for the next: a slow reader slows the server down
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        try:
            async with (
                self._transport() as (messages, write),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._pass_on, messages, incoming)
                try:
                    yield read, write
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            incoming.close()
            read.close()
            self.closed.set()

    async def _pass_on(
        self, messages: Messages, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Pass messages to the SDK until they end; a flood of them ends the connection."""
        quota = Quota(asyncio.get_running_loop().time)
        try:
            async for message in messages:
                if not quota.take():
                    self.problem = f"it floods: more than {MESSAGES_PER_SECOND} messages per second"
                if self.problem:  # also one that sending had in the meantime
                    break
                if isinstance(message, SessionMessage):
                    self.has_received |= isinstance(message.message, types.JSONRPCResponse)
                    drop_output_schemas(message.message)
                await incoming.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the connection ends
        finally:
            incoming.close()
            self.closed.set()


class _PipeWire(_Wire):
    """Messages over the pipes of a process, one in each line."""

    def __init__(self, process: ServerProcess, warn: Warn) -> None:
        super().__init__()
        self._process = process
        self._warn = warn

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[tuple[Messages, Any]]:
        """The process's messages, and a stream that is written to its stdin."""
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, outgoing)
            try:
                yield self._messages(), write
            finally:
                tasks.cancel_scope.cancel()
                write.close()
                outgoing.close()

    async def _messages(self) -> AsyncGenerator[SessionMessage]:
        """The messages until stdout ends; of a few other lines, which are ignored, one is shown."""
        malformed = 0
        try:
            while line := await self._process.read_line():
                if not line.strip():
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    malformed += 1
                    if malformed == 1:
                        self._warn_of(line)
                    if malformed > MAX_MALFORMED:
                        self.problem = f"more than {MAX_MALFORMED} of its lines are not messages"
                        return
                else:
                    yield SessionMessage(message)
        except ValueError:  # of `read_line`
            self.problem = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
        except OSError:
            pass  # the connection ends

    def _warn_of(self, line: bytes) -> None:
        beginning = line[: 4 * _MAX_SHOWN].decode("utf-8", "replace")  # 4 bytes a character
        text = one_line(beginning.strip())[:_MAX_SHOWN]
        self._warn(f"wrote a line that is not a message, which is ignored: {text}")

    async def _send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the SDK's messages to the process, until the stream ends."""
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


class _HttpWire(_Wire):
    """Messages over HTTP+SSE or streamable HTTP."""

    def __init__(self, url: str, http: httpx2.AsyncClient, *, sse: bool) -> None:
        super().__init__()
        self._sse = sse
        self._url = url
        self._http = http

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[tuple[Messages, Any]]:
        """The SDK's transport, with our client in place of its own."""
        transport: AbstractAsyncContextManager[Any]
        if self._sse:
            transport = sse_client(self._url, httpx_client_factory=self._own_client)
        else:
            transport = streamable_http_client(
                self._url, http_client=self._http, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        async with transport as (messages, write):
            try:
                yield messages, write
            finally:
                # the transport's last request says goodbye; a server that is down must not hold us
                self._http.timeout = httpx2.Timeout(_CLOSE_SECONDS)

    def _own_client(self, *_options: object, **_more: object) -> httpx2.AsyncClient:
        """Our client, whatever the options of the SDK's own would be."""
        return self._http


def drop_output_schemas(message: types.JSONRPCMessage) -> None:
    """Remove the schemas of results: the SDK would run their regular expressions."""
    if isinstance(message, types.JSONRPCResponse):
        for tool in json_text.as_objects(message.result.get("tools")):
            tool.pop("outputSchema", None)


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
    """A body that ends with an error where it is too long, or one of its events is."""

    def __init__(self, body: httpx2.AsyncByteStream, *, is_stream: bool) -> None:
        self._body = body
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0  # of the body, or of the event that has begun
        async for part in self._body:
            ends_event = self._is_stream and (b"\n\n" in part or b"\n\r\n" in part)
            # a part that ends an event counts as a whole for the next one: never too little
            size = len(part) if ends_event else size + len(part)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError("the answer is too long")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()
