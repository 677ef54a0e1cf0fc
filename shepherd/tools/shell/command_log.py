"""The output of a background command in a private file, limited in size."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.permissions.content import private_key_sign
from shepherd.tools.redactor import Redactor
from shepherd.tools.text import new_spill_file, plain_text

SEGMENT_BYTES = 4 << 20
"""The log keeps one to two segments: the newest 4 to 8 MiB of a command."""

_KEY_BYTES = 256
"""More than the sign of a private key takes, which can come in parts."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a log: the text of the bytes from `begin` to `end`."""

    text: str
    begin: int
    end: int


@dataclass(slots=True)
class _Segment:
    """A file with the bytes of a log from `begin` on."""

    descriptor: int
    path: Path
    begin: int
    size: int = 0

    @property
    def end(self) -> int:
        return self.begin + self.size

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
        with contextlib.suppress(OSError):
            self.path.unlink()


class CommandLog:
    """Takes any number of bytes, and returns any part of the newest ones as text.

    Secrets are replaced by their names before anything is stored. `problem` says why output was
    lost, "" if none was. `key_sign` is the first sign of a private key in it, "" if there is none.
    """

    def __init__(
        self, folder: Path, secrets: Mapping[str, str], segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.problem = ""
        self.key_sign = ""
        self._seen = b""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._redactor = Redactor(secrets)
        self._segments: list[_Segment] = []
        self._end = 0
        self._closed = False

    @property
    def begin(self) -> int:
        """The position of the first byte that is kept."""
        return self._segments[0].begin if self._segments else self._end

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self._end

    def feed(self, data: bytes) -> bool:
        """Take more output; returns True, because a `Sink` must say whether to go on."""
        self._store(self._redactor.feed(data))
        return True

    def finish(self) -> None:
        """Store the bytes that waited for the rest of a secret."""
        self._store(self._redactor.finish())

    def read(self, begin: int, limit: int) -> Excerpt:
        """At most `limit` bytes from `begin` on, up to the end of a line if one is among them."""
        begin = min(max(begin, self.begin), self._end)
        data = b"".join(self._read(segment, begin, limit) for segment in self._segments)[:limit]
        if begin + len(data) < self._end:
            cut = data.rfind(b"\n") + 1
            data = data[: cut or len(data)]
        text = plain_text(data.decode("utf-8", "replace"))
        return Excerpt(text, begin, begin + len(data))

    def tail(self, limit: int) -> Excerpt:
        """The last whole lines within `limit` bytes; the end of a longer line."""
        excerpt = self.read(self._end - limit, limit)
        if excerpt.begin <= self.begin:
            return excerpt
        cut = excerpt.text.find("\n") + 1
        return Excerpt(excerpt.text[cut:].lstrip("\ufffd"), excerpt.begin, excerpt.end)

    def close(self) -> None:
        """Remove the files."""
        self._closed = True
        for segment in self._segments:
            segment.remove()
        self._segments.clear()

    def _read(self, segment: _Segment, begin: int, limit: int) -> bytes:
        first = max(begin - segment.begin, 0)
        if first >= segment.size:
            return b""
        try:
            return os.pread(segment.descriptor, min(limit, segment.size - first), first)
        except OSError as error:
            self.problem = f"output can't be read: {error}"
            return b""

    def _store(self, data: bytes) -> None:
        if not self.key_sign:
            seen = self._seen + data
            self.key_sign = private_key_sign(seen.decode("latin-1"))
            self._seen = seen[-_KEY_BYTES:]
        while data and not self._closed:
            try:
                segment = self._open_segment()
                written = os.write(segment.descriptor, data[: self._segment_bytes - segment.size])
            except OSError as error:
                self.problem = f"output not kept: {error}"
                return
            segment.size += written
            self._end += written
            data = data[written:]

    def _open_segment(self) -> _Segment:
        """The last segment, or a new one in place of the oldest."""
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            descriptor, path = new_spill_file(self._folder)
            os.close(descriptor)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._segments.append(_Segment(descriptor, path, self._end))
            while len(self._segments) > 2:
                self._segments.pop(0).remove()
        return self._segments[-1]
