"""Loads a whole text file so that it can be edited and written back in its own encoding."""

import codecs
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from shepherd.errors import ToolError
from shepherd.tools.access import AccessKind
from shepherd.tools.files import access, opening
from shepherd.tools.text import pluralize

HEAD_BYTES = 8192
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MAX_STRAY_BYTES = 16
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

MAX_BYTES = 32 << 20


class Encoding(Struct, frozen=True):
    """A codec and its handling of undecodable bytes; decoding and encoding is lossless."""

    codec: str
    errors: str = "strict"

    def decode(self, data: bytes) -> str:
        """The text; undecodable bytes become surrogates, which `encode` turns back."""
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """The inverse; raises UnicodeEncodeError for a character that the codec lacks."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape")
LATIN1 = Encoding("latin-1")


def printable(data: bytes) -> str | None:
    """A whole file as text for the terminal; None if it is not text."""
    encoding = detect(data)
    if encoding is None:
        return None
    try:
        # undecodable bytes became surrogates, which no terminal can print
        return encoding.decode(data).encode("utf-8", "replace").decode()
    except UnicodeDecodeError:
        return None


def detect(head: bytes) -> Encoding | None:
    """The encoding of a file that starts with `head`; None if it is binary.

    A byte-order mark stays in the text as U+FEFF.
    """
    head = head[:HEAD_BYTES]
    for mark, codec in _UTF16.items():
        # the mark of UTF-32 begins with that of UTF-16; a text in it counts as binary
        if head.startswith(mark) and not head.startswith(codecs.BOM_UTF32_LE):
            return Encoding(codec, "surrogatepass")
    if b"\0" in head:
        return None
    controls = sum(1 for byte in head if byte < 32 and byte not in _TEXT_CONTROLS)
    if controls * 10 > len(head):  # a text in color has a few
        return None
    return _eight_bit_encoding(head)


def _eight_bit_encoding(head: bytes) -> Encoding | None:
    """UTF-8 unless most bytes above 127 are broken in it; then Latin-1, or None for a binary."""
    text = head.decode("utf-8", "surrogateescape")
    # a full head may end inside a character
    inner = text[:-3] if len(head) == HEAD_BYTES else text
    broken = sum(1 for c in inner if "\udc80" <= c <= "\udcff")  # so a byte escapes
    proper = sum(1 for c in inner if c > "\x7f" and not "\udc80" <= c <= "\udcff")
    if broken <= proper:
        return UTF8
    # text has fewer letters beyond ASCII, but a few of them may be most of a short one
    is_binary = broken * 10 > len(head) * 3 and broken > _MAX_STRAY_BYTES
    return None if is_binary else LATIN1


class TextFile(Struct, frozen=True):
    """The text of a file with its original line ends, and its encoding."""

    text: str
    encoding: Encoding = UTF8

    @property
    def newline(self) -> str:
        """The line end that most lines have."""
        crlf_lines = self.text.count("\r\n")
        return "\r\n" if crlf_lines * 2 > self.text.count("\n") else "\n"


def load_text(files: access.FileAccess, path: Path, path_text: str) -> TextFile:
    """The file at the resolved `path`; raises ToolError naming it as `path_text`."""
    with opening.file_errors(path_text), files.open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise ToolError(f"too large to edit: {path_text} ({size} bytes)")
        data = file.read(MAX_BYTES + 1)  # a file of /proc has size 0 and any length
    encoding = detect(data)
    if encoding is None:
        raise ToolError(f"binary file: {path_text} ({pluralize(size, 'byte')})")
    try:
        return TextFile(encoding.decode(data), encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"not valid {encoding.codec}: {path_text}") from error


class Replaced(Struct, frozen=True):
    """The content that a write would replace: `text`, or a `note` if it can't be shown."""

    text: str = ""
    note: str = ""
    exists: bool = True


def replaced_file(files: access.FileAccess, path: Path) -> Replaced:
    """The file that a write to the path would replace; empty if there is none.

    Raises ToolError if a rule denies the file.
    """
    try:
        with files.open(path, AccessKind.WRITE) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(MAX_BYTES + 1) if size <= MAX_BYTES else b""
    except FileNotFoundError:
        return Replaced(exists=False)
    except OSError:
        return Replaced(note="replaces a file that can't be read")
    if size > MAX_BYTES:
        return Replaced(note=f"replaces a file of {pluralize(size, 'byte')}, too large to compare")
    encoding = detect(data)
    try:
        if encoding is not None:
            return Replaced(encoding.decode(data))
    except UnicodeDecodeError:
        pass  # UTF-16 that ends inside a character; UTF-8 and Latin-1 read any bytes
    return Replaced(note=f"replaces a binary file of {pluralize(size, 'byte')}")


_CHUNK = 1 << 20
_COUNT_LIMIT = 8 << 30


class Slice(Struct, frozen=True):
    """Raw lines `first` to `last` (from 1, inclusive) of `total`.

    `cut` means that line `last` alone exceeds the byte limit and was cut. `uncounted` means that
    the rest was too long to count; `total` is then a lower bound.
    """

    data: bytes
    first: int
    last: int
    total: int
    cut: bool = False
    uncounted: bool = False

    @property
    def complete(self) -> bool:
        """Whether the slice reaches the end of the file."""
        return self.last >= self.total and not self.cut and not self.uncounted


def read_slice(
    file: BinaryIO, first: int, limit: int, max_bytes: int, stopped: Callable[[], bool]
) -> Slice:
    """Read from line `first` on, at most `limit` lines and `max_bytes`; whole lines if possible."""
    passed = _skip_lines(file, first - 1, stopped)
    if passed < first - 1:
        return Slice(b"", first, last=passed, total=passed)
    data, beyond_slice, last, cut = bytearray(), b"", first - 1, False
    while last - first + 1 < limit:
        room = max_bytes - len(data)
        line = file.readline(room + 1)  # one byte more tells a line that does not fit
        if line and len(line) <= room:
            data += line
            last += 1
            continue
        beyond_slice = line
        if line and not data:  # a line that is too long alone is cut, else nothing could be read
            data += line[:room]
            last, cut, beyond_slice = last + 1, True, line[room:]
        break
    more, uncounted = _count_lines(file, beyond_slice, stopped)
    total = last - cut + more  # what is counted begins with the rest of a cut line
    return Slice(bytes(data), first, last, total, cut, uncounted)


def _skip_lines(file: BinaryIO, count: int, stopped: Callable[[], bool]) -> int:
    """Read past `count` lines; the result is smaller if the file has fewer."""
    passed, at_line_start = 0, True
    while passed < count and not stopped():
        piece = file.readline(_CHUNK)  # a line may have no end, so it is read in pieces
        if not piece:
            return passed if at_line_start else passed + 1
        at_line_start = piece.endswith(b"\n")
        passed += at_line_start
    return passed


def _count_lines(
    file: BinaryIO, already_read: bytes, stopped: Callable[[], bool]
) -> tuple[int, bool]:
    """The number of lines from `already_read` on, and whether the rest was too long to count."""
    lines, size, last_byte = 0, 0, b"\n"
    chunk = already_read or file.read(_CHUNK)
    while chunk and size < _COUNT_LIMIT and not stopped():
        lines += chunk.count(b"\n")
        size += len(chunk)
        last_byte = chunk[-1:]
        chunk = file.read(_CHUNK)
    has_open_line = last_byte != b"\n"
    return lines + has_open_line, bool(chunk)
