"""Small images of every format, made by hand."""

import struct
import zlib

from shepherd.images import Image


def png(width: int = 3, height: int = 2, grey: int = 0x80) -> bytes:
    """A whole PNG of one grey."""
    rows = b"".join(b"\0" + bytes([grey]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def gif(width: int = 3, height: int = 2) -> bytes:
    """The head of a GIF."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def jpeg(width: int = 3, height: int = 2) -> bytes:
    """A JPEG up to its frame, with padding and a segment before that."""
    app0 = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return b"\xff\xd8" + app0 + b"\xff" + frame + b"\xff\xd9"


def webp(width: int = 3, height: int = 2, kind: bytes = b"VP8 ") -> bytes:
    """The head of a WebP: lossy (`VP8 `), lossless (`VP8L`) or extended (`VP8X`)."""
    if kind == b"VP8 ":
        body = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        sides = ((side - 1).to_bytes(3, "little") for side in (width, height))
        body = bytes(4) + b"".join(sides)
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def picture(name: str = "photo.png", width: int = 3, height: int = 2, grey: int = 0x80) -> Image:
    """A PNG as messages hold it."""
    return Image("image/png", png(width, height, grey), name)
