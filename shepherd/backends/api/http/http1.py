"""HTTP/1.1 of a client: requests as bytes, and answers parsed by httptools."""

import re
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httptools

from shepherd.backends.api.http.network import Connection

MAX_HEAD_BYTES = 100 * 1024
"""The maximum of bytes of an answer's headers, and of its trailers."""

READ_BYTES = 64 * 1024

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_NO_BODY = (204, 304)
_SCHEMES = (b"http", b"https")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Http1Request:
    """A request; `head` ends with its blank line. `timeouts` are httpcore's, in seconds."""

    method: bytes
    origin: httpcore.Origin
    head: bytes
    body: bytes | AsyncIterable[bytes] = b""
    timeouts: Mapping[str, float | None] = field(default_factory=dict[str, float | None])


def origin_of(url: httpcore.URL) -> httpcore.Origin:
    """The server of a URL; raises UnsupportedProtocol for other protocols than HTTP."""
    if url.scheme not in _SCHEMES:
        scheme = url.scheme.decode("ascii", "replace")
        raise httpcore.UnsupportedProtocol(f"the protocol {scheme!r} is not supported")
    return url.origin


def request_head(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes before the body; raises LocalProtocolError for what could forge a request."""
    if not _NAME.fullmatch(method) or not _TARGET.fullmatch(target):
        raise httpcore.LocalProtocolError("Illegal method or target")
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise httpcore.LocalProtocolError(f"Illegal header name {name!r}")
        if not _VALUE.fullmatch(value):
            raise httpcore.LocalProtocolError(f"Illegal header value of {name!r}")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])


class _Message:
    """The answer that is parsed, with the calls of httptools' parser."""

    def __init__(self, *, headless: bool) -> None:
        self._headless = headless
        self._size = 0
        self._parser: Any = httptools.HttpResponseParser(self)
        self.status = 0
        self.error: httpcore.RemoteProtocolError | None = None
        self.headers: Headers = []
        self.pieces: list[bytes] = []
        self.begun = self.complete = self.reusable = self.ends_with_connection = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes; `error` is set for wrong ones, after the pieces before them.

        Bytes after the end of the answer belong to no request: the connection is not used again.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                self.error = httpcore.RemoteProtocolError(_reason(error))
            self.reusable = False

    def end(self) -> None:
        """Note the end of the connection; `error` is set if it comes too early."""
        if not self.begun:
            why = "Server disconnected without sending a response."
        elif not (self.complete or self.ends_with_connection):
            why = "peer closed connection without sending complete message body"
        else:
            self.complete = True
            return
        self.error = httpcore.RemoteProtocolError(why)

    def on_message_begin(self) -> None:
        if self.complete:
            raise httpcore.RemoteProtocolError("data after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES:
            raise httpcore.RemoteProtocolError("the headers are too large")
        if not self.begun:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = []
            return
        self.begun = True
        self.reusable = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self.headers}
        sized = b"content-length" in names or b"transfer-encoding" in names
        self.ends_with_connection = not (sized or self.status in _NO_BODY)
        if self._headless:
            self.complete, self.reusable = True, False

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        if self.begun:
            self.complete = True


def _reason(error: Exception) -> str:
    """Why an answer was refused: our own reason, or the parser's."""
    if isinstance(error, httptools.HttpParserUpgrade):
        return "the server changes the protocol"
    own = error.__context__
    return str(own if isinstance(own, httpcore.RemoteProtocolError) else error)


class Http1Connection:
    """A connection to one origin for one request at a time; it connects with the first."""

    def __init__(
        self,
        origin: httpcore.Origin,
        certificates: ssl.SSLContext,
        network: httpcore.AsyncNetworkBackend,
        expiry: float | None,
        socket_options: Iterable[tuple[int, int, int]],
    ) -> None:
        """An idle connection expires after `expiry` seconds, None for never."""
        self.origin = origin
        self._certificates = certificates
        self._network = network
        self._expiry = expiry
        self._options = list(socket_options)
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._idle_since: float | None = None
        self.closed = False

    @property
    def idle(self) -> bool:
        """Whether its last answer was read to the end, so that it can be used again."""
        return self._idle_since is not None

    @property
    def stream(self) -> httpcore.AsyncNetworkStream | None:
        """The open connection."""
        return self._stream

    def has_expired(self) -> bool:
        """Whether it has been idle for too long."""
        if self._idle_since is None or self._expiry is None:
            return False
        return time.monotonic() > self._idle_since + self._expiry

    def is_broken(self) -> bool:
        """Whether the server has closed an idle connection, or sent what belongs to no request."""
        return self._stream is None or bool(self._stream.get_extra_info("is_readable"))

    async def send(self, request: Http1Request) -> "Http1Answer":
        """The answer, before its body is read; raises httpcore's errors."""
        self._idle_since = None
        timeouts = request.timeouts
        try:
            stream = self._stream or await self._connect(timeouts.get("connect"))
            await _write(stream, request)
            message = _Message(headless=request.method == b"HEAD")
            while not message.begun:
                await _receive(stream, message, timeouts.get("read"))
        except BaseException:
            await self.aclose()
            raise
        return Http1Answer(self, stream, message, timeouts.get("read"))

    async def aclose(self) -> None:
        """Close it, also in the middle of an answer."""
        self._idle_since, self.closed = None, True
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def keep(self) -> None:
        """Note that the answer was read to the end."""
        if not self.closed:
            self._idle_since = time.monotonic()

    async def _connect(self, timeout: float | None) -> httpcore.AsyncNetworkStream:
        host, port = self.origin.host.decode("ascii"), self.origin.port
        stream = await self._network.connect_tcp(host, port, timeout, socket_options=self._options)
        if self.origin.scheme == b"https":
            stream = await stream.start_tls(self._certificates, host.strip("[]"), timeout)
        self._stream = stream
        return stream


class Http1Answer:
    """An answer whose body is read once; closing it releases or closes the connection."""

    def __init__(
        self,
        connection: Http1Connection,
        stream: httpcore.AsyncNetworkStream,
        message: _Message,
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._message = message
        self._timeout = timeout

    @property
    def status(self) -> int:
        return self._message.status

    @property
    def headers(self) -> Headers:
        return self._message.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as it was sent; raises httpcore's errors."""
        message = self._message
        while True:
            if message.pieces:
                pieces, message.pieces = message.pieces, []
                for piece in pieces:
                    yield piece
            elif message.complete:
                return
            else:
                await _receive(self._stream, message, self._timeout)

    async def aclose(self) -> None:
        """Keep the connection for the next request, or close it."""
        message = self._message
        if message.complete and message.reusable and not message.pieces:
            self._connection.keep()
        else:
            await self._connection.aclose()


async def _receive(
    stream: httpcore.AsyncNetworkStream, message: _Message, timeout: float | None
) -> None:
    """Read once; raises the error of an earlier read, then its own."""
    if message.error is None:
        data = await stream.read(READ_BYTES, timeout)
        if data:
            message.feed(data)
        else:
            message.end()
    if message.error is not None and not message.pieces and not message.complete:
        raise message.error


async def _write(stream: httpcore.AsyncNetworkStream, request: Http1Request) -> None:
    """Send the request; a server may answer and close before it has read all of it."""
    timeout, body = request.timeouts.get("write"), request.body
    try:
        if isinstance(body, bytes):
            await stream.write(request.head + body, timeout)
            if isinstance(stream, Connection):
                stream.flush()  # nothing follows, so nothing must wait
            return
        await stream.write(request.head, timeout)
        async for piece in body:
            if piece:
                await stream.write(piece, timeout)
    except httpcore.WriteError:
        pass  # the answer says why
