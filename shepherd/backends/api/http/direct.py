"""Requests and responses on a connection pool without httpx's objects in between."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import httpcore
import httpx

from shepherd.backends.api.http.errors import CORE_ERRORS, httpx_error
from shepherd.backends.api.http.http1 import Headers, Http1Request, origin_of, request_head
from shepherd.backends.api.http.pool import ConnectionPool, PooledAnswer


class StreamedResponse(Protocol):
    """What the APIs of providers need of a response; httpx's is one too."""

    @property
    def status_code(self) -> int: ...

    @property
    def is_success(self) -> bool: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers by their names in lower case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The decoded body."""
        ...


class DirectResponse:
    """A `StreamedResponse` of a pool; reading raises httpx's errors."""

    def __init__(self, answer: PooledAnswer) -> None:
        self.status_code = answer.status
        self.headers: Mapping[str, str] = _by_name(answer.headers)
        self._answer = answer

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The decoded body."""
        if self.headers.get("content-encoding", "identity") == "identity":
            return self._body()
        return self.as_httpx().aiter_bytes()

    def as_httpx(self, prepared: "PreparedRequest | None" = None) -> httpx.Response:
        """The same as httpx's, with the body still to be read."""
        request = (
            None if prepared is None else httpx.Request(prepared.method.decode(), prepared.url)
        )
        stream = _Pieces(self._body())
        return httpx.Response(
            self.status_code, headers=self._answer.headers, stream=stream, request=request
        )

    async def aclose(self) -> None:
        """Keep the connection if the body was read to its end, close it otherwise."""
        await self._answer.aclose()

    async def _body(self) -> AsyncGenerator[bytes]:
        try:
            async for piece in self._answer:
                yield piece
        except CORE_ERRORS as error:
            raise httpx_error(error) from error


class _Pieces(httpx.AsyncByteStream):
    """A body as httpx decodes it."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """All of a request but its body and the length of that."""

    url: httpx.URL
    method: bytes
    origin: httpcore.Origin
    head: bytes

    @classmethod
    def of(cls, request: httpx.Request) -> "PreparedRequest":
        """The request without its body; raises LocalProtocolError if a header is not allowed."""
        url, method = request.url, request.method.encode("ascii")
        fields = [(n, v) for n, v in request.headers.raw if n.lower() != b"content-length"]
        parts = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        try:
            origin, head = origin_of(parts), request_head(method, url.raw_path, fields)
        except CORE_ERRORS as error:
            raise httpx_error(error, request) from error
        return cls(url, method, origin, head.removesuffix(b"\r\n"))


async def direct_response(
    pool: ConnectionPool,
    prepared: PreparedRequest,
    body: bytes | None,
    timeouts: Mapping[str, float | None],
) -> DirectResponse:
    """The answer of a pool, before its body is read; raises httpx's errors."""
    length = b"\r\n" if body is None else b"content-length: %d\r\n\r\n" % len(body)
    head = prepared.head + length
    request = Http1Request(prepared.method, prepared.origin, head, body or b"", timeouts)
    try:
        return DirectResponse(await pool.send(request))
    except CORE_ERRORS as error:
        raise httpx_error(error) from error


def _by_name(headers: Headers) -> Mapping[str, str]:
    """The headers as text; those of one name are joined, as httpx does it."""
    result: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        result[name] = f"{result[name]}, {value}" if name in result else value
    return result
