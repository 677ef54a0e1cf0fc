"""Finding lines again by their numbers."""

from typing import BinaryIO

_CHUNK = 1 << 20


class LineCursor:
    """Goes forward through a file of any size from one line to a later one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 1
        self._start = 0

    def has_line(self, number: int, start: bytes, *, cut: bool) -> bool:
        """Whether the line is `start`, or begins with it if `cut`; carriage returns at its end
        do not count. Lines are asked for in ascending order.
        """
        if not self._forward(number):
            return False
        self._file.seek(self._start)
        found = self._file.read(len(start) + (0 if cut else _MAX_RETURNS))
        if cut:
            return found == start
        line, _, _ = found.partition(b"\n")
        return line.rstrip(b"\r") == start

    def _forward(self, number: int) -> bool:
        """Move to the start of the line; False if it is behind the end or before this one."""
        self._file.seek(self._start)
        while self._number < number:
            chunk = self._file.read(_CHUNK)
            if not chunk:
                return False
            if self._number + chunk.count(b"\n") < number:
                self._number += chunk.count(b"\n")
                self._start += len(chunk)
                continue
            end = -1
            for _ in range(number - self._number):
                end = chunk.index(b"\n", end + 1)
            self._number, self._start = number, self._start + end + 1
        return self._number == number


_MAX_RETURNS = 64
