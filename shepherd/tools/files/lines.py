"""Reads a slice of lines from a file of any size in constant memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

_CHUNK = 1 << 20
_COUNT_LIMIT = 8 << 30


@dataclass(frozen=True, slots=True)
class Slice:
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
    passed = _skip(file, first - 1, stopped)
    if passed < first - 1:
        return Slice(b"", first, passed, passed)
    data, rest, last, cut = bytearray(), b"", first - 1, False
    while last - first + 1 < limit:
        room = max_bytes - len(data)
        line = file.readline(room + 1)
        if len(line) <= room and line:
            data += line
            last += 1
            continue
        if line and not data:
            data += line[:room]
            last, cut, line = last + 1, True, line[room:]
        rest = line
        break
    total, uncounted = _count(file, rest, stopped)
    return Slice(bytes(data), first, last, last - cut + total, cut, uncounted)


def _skip(file: BinaryIO, count: int, stopped: Callable[[], bool]) -> int:
    passed, whole = 0, True
    while passed < count and not stopped():
        piece = file.readline(_CHUNK)
        if not piece:
            return passed if whole else passed + 1
        whole = piece.endswith(b"\n")
        passed += whole
    return passed


def _count(file: BinaryIO, rest: bytes, stopped: Callable[[], bool]) -> tuple[int, bool]:
    lines, size, final = 0, 0, b"\n"
    chunk = rest or file.read(_CHUNK)
    while chunk and size < _COUNT_LIMIT and not stopped():
        lines += chunk.count(b"\n")
        size += len(chunk)
        final = chunk[-1:]
        chunk = file.read(_CHUNK)
    return lines + (final != b"\n"), bool(chunk)
