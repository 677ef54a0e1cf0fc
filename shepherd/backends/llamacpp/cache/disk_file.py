"""Files of saved sequences: the folder that processes share, and the format of one file."""

import fcntl
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from stat import S_ISDIR
from time import monotonic, sleep, time
from typing import BinaryIO

from msgspec import Struct

from shepherd.backends.llamacpp.cache import prefixes, sequence

SUFFIX = ".state"
_UNFINISHED = ".unfinished"
_LOCK = "lock"

LOCK_SECONDS = 2.0
"""Seconds to wait for another process that is writing."""

CLOCK_SECONDS = 3600.0
"""Seconds that a file's time may be ahead of the clock, as on a shared file system."""

MAGIC = b"SHEPKV2\n"
"""The format; files of another one are not read."""

_HEAD = struct.Struct("<8s32sIIIQII")
"""Magic, fingerprint, tokens, checkpoints, bytes of the owner and of the state, checksums of the
index and of the states."""

_CHECKPOINT = struct.Struct("<IQ")


class StateFile(Struct, frozen=True):
    """A file of the folder; `used` is the time of its last use, in seconds since the epoch."""

    path: Path
    bytes: int
    used: float


class StateFolder:
    """A folder that only its owner can read. Files are written atomically; the oldest go first."""

    def __init__(self, path: Path, capacity: int) -> None:
        """The first write creates the folder; raises OSError if it belongs to another user."""
        self.path = path
        self.capacity = capacity
        if path.exists():
            self._check()

    def version(self) -> int:
        """A number that changes when files are added or removed."""
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def files(self) -> list[StateFile]:
        """All files, least recently used first.

        A time in the future comes from a wrong clock. It counts as long ago; otherwise the file
        would stay until the clock reaches that time.
        """
        files: list[StateFile] = []
        if not self.path.exists():
            return files
        future = time() + CLOCK_SECONDS
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process has removed it
                    continue
                used = status.st_mtime if status.st_mtime < future else 0.0
                files.append(StateFile(Path(entry.path), status.st_size, used))
        return sorted(files, key=lambda file: file.used)

    def touch(self, path: Path, used: float) -> None:
        """Set the time of a file's last use; the file may be missing."""
        try:
            os.utime(path, (used, used))
        except FileNotFoundError:
            return

    def write(
        self, name: str, size: int, used: float, fill: Callable[[BinaryIO], None]
    ) -> int | None:
        """Add a file of `size` bytes; less recently used files are removed to make room.

        Returns the number of removed files. Returns None if nothing was written, because there is
        no room or another process was writing for too long. Raises OSError.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check()  # again: somebody else may have made it meanwhile
        with self._lock() as locked:
            if not locked:
                return None
            for path in self.path.glob(f"*{_UNFINISHED}"):  # of processes that died
                path.unlink(missing_ok=True)
            removed = self._make_room(size, used)
            if removed is not None:
                self._write(name, used, fill)
            return removed

    def _check(self) -> None:
        """Raise PermissionError unless the folder is this user's; nobody else may read it."""
        status = self.path.lstat()
        if not S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self.path} is not a directory of this user")
        if status.st_mode & 0o077:
            self.path.chmod(0o700)

    def _make_room(self, size: int, used: float) -> int | None:
        """Remove the least recently used files; None if newer ones would have to go."""
        files = self.files()
        over = sum(file.bytes for file in files) + size - self.capacity
        victims: list[StateFile] = []
        for file in files:
            if over <= 0:
                break
            if file.used >= used:  # what was used later is worth more than the new file
                return None
            victims.append(file)
            over -= file.bytes
        if over > 0:
            return None
        for victim in victims:
            victim.path.unlink(missing_ok=True)
        return len(victims)

    def _write(self, name: str, used: float, fill: Callable[[BinaryIO], None]) -> None:
        """Write under another name first: a file with the right name is complete."""
        target = self.path / name
        unfinished = target.with_suffix(_UNFINISHED)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
                fill(file)
            os.utime(unfinished, (used, used))
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    @contextmanager
    def _lock(self) -> Generator[bool]:
        """Keep other processes from writing; False if one of them does so for too long."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self.path / _LOCK, flags, 0o600)
        try:
            yield _wait_for(handle)
        finally:
            os.close(handle)


def _wait_for(handle: int) -> bool:
    """Lock the folder; False if another process holds it for too long."""
    deadline = monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > deadline:
                return False
            sleep(0.02)
        else:
            return True


class DamagedFileError(Exception):
    """The contents of a file are damaged."""


class SavedSequence(Struct, frozen=True, eq=False):
    """The index of a file: its tokens, their owner, and lengths and sizes of its checkpoints."""

    path: Path
    tokens: "array[int]"
    owner: prefixes.Owner
    checkpoints: tuple[tuple[int, int], ...]
    state_bytes: int
    body_sum: int

    @property
    def packed(self) -> "array[int]":
        """The tokens, as a sequence has them."""
        return self.tokens

    @property
    def lengths(self) -> list[int]:
        """The lengths of the checkpoints, shortest first."""
        return [length for length, _ in self.checkpoints]

    @property
    def body_bytes(self) -> int:
        """The size of all states."""
        return self.state_bytes + sum(size for _, size in self.checkpoints)

    @property
    def bytes(self) -> int:
        """The size of the file: a head, the index of tokens and checkpoints, and all states."""
        tokens = len(self.tokens) * self.tokens.itemsize
        index = tokens + len(self.checkpoints) * _CHECKPOINT.size + len(_owner_text(self.owner))
        return _HEAD.size + index + self.body_bytes


def file_bytes(entry: sequence.StoredSequence) -> int:
    """The size of the file for an entry."""
    table = len(entry.checkpoints.items) * _CHECKPOINT.size
    return entry.bytes + _HEAD.size + table + len(_owner_text(entry.owner))


def write_entry(file: BinaryIO, fingerprint: bytes, entry: sequence.StoredSequence) -> None:
    """Write an entry; raises OSError."""
    items = entry.checkpoints.items
    table = b"".join(_CHECKPOINT.pack(item.length, len(item.state)) for item in items)
    owner = _owner_text(entry.owner)
    index = entry.tokens.tobytes() + table + owner
    states = [*(item.state for item in items), entry.state]
    body_sum = 0
    for state in states:
        body_sum = zlib.crc32(state, body_sum)
    counts = (len(entry.tokens), len(items), len(owner), len(entry.state), body_sum)
    file.write(_HEAD.pack(MAGIC, fingerprint, *counts, _index_sum(fingerprint, counts, index)))
    file.write(index)
    for state in states:
        file.write(state)


def read_index(path: Path, fingerprint: bytes) -> SavedSequence:
    """Read the index of a file; raises OSError or DamagedFileError."""
    with path.open("rb", buffering=0) as file:
        return _index(path, file, fingerprint)


def read_entry(path: Path, fingerprint: bytes) -> sequence.StoredSequence:
    """Read a whole file; raises OSError or DamagedFileError."""
    with path.open("rb") as file:
        saved = _index(path, file, fingerprint)
        body = [bytearray(size) for _, size in saved.checkpoints] + [bytearray(saved.state_bytes)]
        checksum = 0
        for part in body:
            if file.readinto(part) != len(part):
                raise DamagedFileError("it is cut off")
            checksum = zlib.crc32(part, checksum)
    if checksum != saved.body_sum:
        raise DamagedFileError("its states are damaged")
    *checkpoint_states, whole_state = body
    checkpoints = sequence.Checkpoints()
    for length, state in zip(saved.lengths, checkpoint_states, strict=True):
        checkpoints.add(sequence.Checkpoint(length, state))
    return sequence.StoredSequence(saved.tokens, whole_state, checkpoints, owner=saved.owner)


def _index(path: Path, file: BinaryIO | FileIO, fingerprint: bytes) -> SavedSequence:
    """Read and check header and index, which must agree with the size of the file."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD.size) or b""
    if len(head) < _HEAD.size:
        raise DamagedFileError("it is cut off")
    magic, own_print, *counts, index_sum = _HEAD.unpack(head)
    if magic != MAGIC or own_print != fingerprint:
        raise DamagedFileError("its head is another one's")
    tokens, checkpoints, owner_bytes, state, body_sum = counts
    numbers = prefixes.packed(())
    token_bytes = tokens * numbers.itemsize
    table_end = token_bytes + checkpoints * _CHECKPOINT.size
    length = table_end + owner_bytes
    index = file.read(min(length, size)) or b""  # a damaged head may ask for any length
    if len(index) < length:
        raise DamagedFileError("it is cut off")
    if _index_sum(fingerprint, tuple(counts), index) != index_sum:
        raise DamagedFileError("its index is damaged")
    numbers.frombytes(index[:token_bytes])
    table = tuple(_CHECKPOINT.iter_unpack(index[token_bytes:table_end]))
    shared, _, name = index[table_end:].decode().partition(" ")
    saved = SavedSequence(path, numbers, prefixes.Owner(name, int(shared)), table, state, body_sum)
    if saved.bytes != size:
        raise DamagedFileError("it is cut off")
    return saved


def _owner_text(owner: prefixes.Owner) -> bytes:
    """The owner as it is written."""
    return f"{owner.shared} {owner.name}".encode()


def _index_sum(fingerprint: bytes, counts: tuple[int, ...], index: bytes) -> int:
    """The checksum of all that the head and the index say."""
    return zlib.crc32(index, zlib.crc32(repr(counts).encode(), zlib.crc32(fingerprint)))
