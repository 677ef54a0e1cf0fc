"""HTTP requests and replies as plain data."""

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

_GZIP_OR_ZLIB = zlib.MAX_WBITS + 32
_ZIPPED = frozenset({"gzip", "x-gzip", "deflate"})


@dataclass(frozen=True, slots=True)
class Body:
    """The first bytes; `cut` if there were more, `coding` if they could not be decoded."""

    data: bytes
    cut: bool = False
    coding: str = ""


async def read_body(chunks: AsyncIterator[bytes], coding: str, limit: int) -> Body:
    """At most `limit` bytes of the body that arrives as `chunks`, encoded by `coding`.

    Servers may compress although the request does not ask for it. At most `limit` bytes are
    unpacked. Raises ValueError if the body does not match the coding.
    """
    coding = coding.strip().lower()
    zipped = zlib.decompressobj(_GZIP_OR_ZLIB) if coding in _ZIPPED else None
    data = bytearray()
    async for chunk in chunks:
        try:
            data += zipped.decompress(chunk, limit + 1 - len(data)) if zipped else chunk
        except zlib.error as error:
            raise ValueError(f"broken {coding} body") from error
        if len(data) > limit:
            break
    known = zipped is not None or coding in ("", "identity")
    return Body(bytes(data[:limit]), len(data) > limit, "" if known else coding)


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the names of its headers are in lower case."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, with headers as the server wrote them."""

    status: int
    content_type: str
    charset: str | None
    location: str
    body: Body
