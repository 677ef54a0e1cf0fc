"""Writes a conversation to its file as it happens."""

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shepherd.config.files import make_private_directory
from shepherd.errors import SessionError
from shepherd.messages import Message
from shepherd.transcript.reading import SavedSession, parse_session
from shepherd.transcript.records import (
    VERSION,
    Branched,
    Change,
    Cleared,
    Compacted,
    Header,
    MessageAdded,
    MessagesEvicted,
    SettingChanged,
    change_line,
    header_line,
)

MAX_HEADER = 1 << 24
"""The limit of the first line in bytes; it holds the system message."""


class Transcript:
    """The journal of one session; its file is created at the first write.

    Each change is one line in one write, which the kernel has when the call returns. So a killed
    process loses at most the line it was writing. Closing the transcript syncs the file to the
    disk; before that, only a power failure can lose more. The file is locked while the
    transcript is open.

    A failed write (disk full) does not end the conversation: `on_failure` is called once, and
    nothing more is written.
    """

    def __init__(self, path: Path, header: Header, on_failure: Callable[[str], None]) -> None:
        self.path = path
        self.header = header
        self._on_failure = on_failure
        self._descriptor: int | None = None
        self._closed = False
        self._numbers: list[int | None] = []
        self._next = 0

    @classmethod
    def reopen(
        cls, path: Path, on_failure: Callable[[str], None]
    ) -> tuple["Transcript", SavedSession]:
        """Continue the file at `path`; an incomplete last line is removed.

        Raises SessionError if it is open in another process or can't be read.
        """
        descriptor = _open_locked(path, os.O_RDWR | os.O_APPEND)
        try:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                saved = parse_session(path, file.read())
            os.ftruncate(descriptor, saved.sound_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        transcript = cls(path, saved.header, on_failure)
        transcript._adopt(descriptor, saved)
        return transcript, saved

    def message_added(self, message: Message) -> None:
        self._numbers.append(self._next)
        self._write(MessageAdded(self._next, message))
        self._next += 1

    def messages_evicted(self, ranges: Sequence[range]) -> None:
        to_remove = {i for r in ranges for i in r}
        evicted = tuple(n for i, n in enumerate(self._numbers) if i in to_remove and n is not None)
        self._numbers = [n for i, n in enumerate(self._numbers) if i not in to_remove]
        self._write(MessagesEvicted(evicted))

    def cleared(self) -> None:
        self._numbers.clear()
        if self._descriptor is not None:
            self._write(Cleared())

    def branched(self, number: int, messages: Sequence[int | None], resumed: int | None) -> None:
        self._numbers, self._next = list(messages), number + 1
        self._need_version(VERSION)
        self._write(Branched(number, tuple(n for n in messages if n is not None), resumed))

    def compacted(self, ranges: Sequence[range], summary: Message) -> None:
        to_remove = [i for r in ranges for i in r]
        replaced = tuple(n for i in to_remove if (n := self._numbers[i]) is not None)
        rest = [n for i, n in enumerate(self._numbers) if i not in to_remove]
        place = ranges[0].start
        self._numbers = [*rest[:place], self._next, *rest[place:]]
        self._need_version(VERSION)
        self._write(Compacted(self._next, replaced, summary))
        self._next += 1

    def system_message_changed(self, text: str) -> None:
        """Record that the system message has changed."""
        self._setting_changed("system_message", text)

    def model_changed(self, name: str) -> None:
        """Record that another model answers from here on."""
        self._setting_changed("model", name)

    def close(self) -> None:
        """Sync the file and release the lock; nothing is written afterwards."""
        self._closed = True
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._fail(error)
        else:
            os.close(self._descriptor)
            self._descriptor = None

    def _adopt(self, descriptor: int, saved: SavedSession) -> None:
        self._descriptor = descriptor
        self._numbers = list(saved.numbers)
        self._next = saved.next_number
        if not saved.complete:
            self._append(descriptor, b"\n")

    def _setting_changed(self, name: str, value: str) -> None:
        if self._descriptor is None:
            self.header = replace(self.header, **{name: value})
        else:
            self._write(SettingChanged(name, value))

    def _need_version(self, version: int) -> None:
        """Raise the version in the header, so that an older Shepherd refuses the file."""
        before, self.header = self.header, replace(self.header, version=version)
        if self._descriptor is None or before.version >= version:
            return
        try:
            raise_version(self.path, before.version, version)
        except OSError as error:
            self._fail(error)

    def _write(self, change: Change) -> None:
        if self._closed:
            return
        if self._descriptor is not None:
            self._append(self._descriptor, change_line(change))
        else:
            self._create(change_line(change))

    def _create(self, first_line: bytes) -> None:
        try:
            make_private_directory(self.path.parent)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
            self._descriptor = _open_locked(self.path, flags)
        except (OSError, SessionError) as error:
            self._fail(error)
        else:
            self._append(self._descriptor, header_line(self.header) + first_line)
            if self._closed:
                self.path.unlink(missing_ok=True)

    def _append(self, descriptor: int, data: bytes) -> None:
        before = os.fstat(descriptor).st_size
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError as error:
            with suppress(OSError):  # readers skip an incomplete last line
                os.ftruncate(descriptor, before)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._closed = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        reason = error.strerror if isinstance(error, OSError) else error
        self._on_failure(f"{self.path}: the session is no longer saved: {reason}")


def raise_version(path: Path, before: int, version: int) -> None:
    """Replace the one digit of the version in the header of the file at `path`."""
    with path.open("r+b", buffering=0) as file:
        line = file.read(MAX_HEADER).partition(b"\n")[0]
        place = line.rfind(b'"version": %d}' % before)
        if place >= 0:
            file.seek(place)
            file.write(b'"version": %d}' % version)


def delete_session(path: Path) -> None:
    """Delete the session file at `path`; raises SessionError if it is open elsewhere."""
    descriptor = _open_locked(path, os.O_RDWR)
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _open_locked(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SessionError(f"{path}: can't be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise SessionError(f"Session {path.stem} is open in another Shepherd.") from error
    return descriptor
