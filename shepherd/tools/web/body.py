"""The body of a reply, read only as far as it is wanted."""

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

_GZIP_OR_ZLIB = zlib.MAX_WBITS + 32
_ZIPPED = frozenset({"gzip", "x-gzip", "deflate"})


@dataclass(frozen=True, slots=True)
class Body:
    """The first bytes; `cut` if there were more, `coding` if they could not be decoded."""

    data: bytes
    cut: bool = False
    coding: str = ""


async def read_body(chunks: AsyncIterator[bytes], coding: str, limit: int) -> Body:
    """At most `limit` bytes of the body that comes as `chunks`, encoded by `coding`.

    No coding is asked for, but servers do as they like. Never more than `limit` bytes are unpacked.
    Raises ValueError if the body is not what the coding says.
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
