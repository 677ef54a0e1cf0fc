"""Images in a conversation; their type and size are read from their bytes."""

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ImageError

MAX_IMAGE_BYTES = 20 * 1024 * 1024
MAX_IMAGES = 20
"""The maximum size of an image, and the maximum number of images with one message."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_WHITESPACE = b" \t\n\r\v\f"
_SLICE = 64 * 1024
_HEAD_BYTES = 12
"""The number of first bytes that identify the type."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})


class Image(Struct, frozen=True):
    """An image as in its file; `media_type` is one of MEDIA_TYPES, and `name` is for display."""

    media_type: str
    data: bytes
    name: str = ""

    def __repr__(self) -> str:
        return f"Image({self.media_type!r}, {self.name!r})"  # without megabytes of data

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; (0, 0) if they are unknown."""
        try:
            return _SIZES[self.media_type](self.data)
        except (KeyError, IndexError, struct.error):
            return 0, 0

    @property
    def label(self) -> str:
        """Its placeholder in text: `[image photo.png, 640×480]`."""
        width, height = self.size
        pixels = f"{width}×{height}" if width else ""
        named = ", ".join(part for part in (" ".join(self.name.split()), pixels) if part)
        return f"[image {named}]" if named else "[image]"

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return b64encode(self.data).decode("ascii")

    @property
    def data_url(self) -> str:
        """The image as a `data:` URL."""
        return f"data:{self.media_type};base64,{self.base64}"


def read_image(data: bytes, name: str = "") -> Image:
    """The image in `data`; raises ImageError with advice if models can't use it."""
    label = name or "The image"
    if len(data) > MAX_IMAGE_BYTES:
        limit = MAX_IMAGE_BYTES // 1024**2
        raise ImageError(f"{label} is larger than {limit} MiB; make it smaller first.")
    image = Image(_sniffed(data), data, name)
    if not image.media_type:
        raise ImageError(
            f"{label} is not a PNG, JPEG, GIF or WebP; convert it to one of these first."
        )
    if not all(image.size):
        raise ImageError(f"{label} is damaged: its size in pixels can't be read; save it again.")
    return image


def load_image(path: Path, name: str) -> Image:
    """The image in this file, called `name`; raises ImageError with that name."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{name} can't be read: {error.strerror}") from error
    return read_image(data, name)


def decode_image(text: str, name: str = "") -> Image:
    """The image in a `data:` URL or in base64 alone; raises ImageError."""
    head, comma, tail = text.partition(",")
    if comma and not head.lower().endswith(";base64"):
        raise ImageError("A data URL of an image must be in base64: data:image/png;base64,…")
    try:
        data = _decoded(tail if comma else text)
    except ValueError as error:
        label = name or "An image"
        raise ImageError(f"{label} is not valid base64 ({error}); encode it again.") from error
    return read_image(data, name)


def _decoded(text: str) -> bytes:
    """The bytes in base64, whitespace ignored; raises ValueError.

    Works in slices, so that other threads can run in between. Stops early if the bytes are too
    many or not those of an image.
    """
    # `carry` are characters that make no whole group of four yet; `=` has `ended` the data
    data, carry, ended = bytearray(), b"", False
    for start in range(0, len(text), _SLICE):
        carry += text[start : start + _SLICE].encode("ascii").translate(None, _WHITESPACE)
        if ended and carry:
            raise ValueError("there is text after its end")
        whole = carry[: len(carry) // 4 * 4]  # four characters are three bytes
        data += b64decode(whole, validate=True)
        carry, ended = carry[len(whole) :], ended or whole.endswith(b"=")
        is_other = len(data) >= _HEAD_BYTES and not _sniffed(bytes(data[:_HEAD_BYTES]))
        if is_other or len(data) > MAX_IMAGE_BYTES:  # `read_image` will refuse it
            return bytes(data)
    return bytes(data + b64decode(carry, validate=True))


def check_count(images: Sequence[object]) -> None:
    """Raise ImageError if there are too many images for one message."""
    if len(images) > MAX_IMAGES:
        raise ImageError(
            f"{len(images)} images are too many for one message, which can have {MAX_IMAGES}; "
            "send the others with the next one."
        )


def _sniffed(data: bytes) -> str:
    """The type by the first bytes, "" for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data.startswith(b"RIFF") and data[8:12] == b"WEBP" else ""


def _png_size(data: bytes) -> tuple[int, int]:
    """The size from the first chunk, IHDR, whose content begins at byte 16."""
    return struct.unpack_from(">II", data, 16)


def _gif_size(data: bytes) -> tuple[int, int]:
    """The size of the canvas, which follows the six bytes of the signature."""
    return struct.unpack_from("<HH", data, 6)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """The size from the frame's header, which follows other segments; (0, 0) without one.

    A segment is 0xFF, its kind, mostly a length of two bytes, and its content.
    """
    at = 2  # behind the mark that all files begin with
    for _ in range(_JPEG_SEGMENTS):
        if data[at] != 0xFF:
            break
        kind = data[at + 1]
        if kind == 0xFF:  # padding
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in _JPEG_TABLES:  # the frame's header
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif kind in _JPEG_BARE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    """The size from the first chunk: lossy, lossless, or with a canvas of its own.

    The first two have 14 bits for each side; all but the lossy one count from 0 for one pixel.
    """
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(data) >= 30:
            sides = data[24:27], data[27:30]
            width, height = (int.from_bytes(side, "little") + 1 for side in sides)
            return width, height
        case _:
            return 0, 0


_JPEG_SEGMENTS = 10_000
_JPEG_TABLES = frozenset({0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_SIZES: Mapping[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
}
