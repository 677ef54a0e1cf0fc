"""The file of a saved sequence: a header, an index of tokens and checkpoints, the states."""

import os
import struct
import zlib
from array import array
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from shepherd.backends.llamacpp.cache.prefixes import packed
from shepherd.backends.llamacpp.cache.sequence import Checkpoint, Checkpoints, StoredSequence

_MAGIC = b"SHEPKV1\n"
_HEAD = struct.Struct("<8s32sIIQII")
"""Magic, fingerprint, tokens, checkpoints, bytes of the state, checksums of index and states."""

_CHECKPOINT = struct.Struct("<IQ")


class DamagedFileError(Exception):
    """The contents of a file are damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedSequence:
    """The index of a file: its tokens, and the lengths and sizes of its checkpoints."""

    path: Path
    tokens: "array[int]"
    checkpoints: tuple[tuple[int, int], ...]
    state_bytes: int
    body_sum: int

    @property
    def lengths(self) -> list[int]:
        """The lengths of the checkpoints, shortest first."""
        return [length for length, _ in self.checkpoints]

    @property
    def body_bytes(self) -> int:
        """The size of all states."""
        return self.state_bytes + sum(size for _, size in self.checkpoints)

    @property
    def index_bytes(self) -> int:
        """The size of header and index."""
        tokens = len(self.tokens) * self.tokens.itemsize
        return _HEAD.size + tokens + len(self.checkpoints) * _CHECKPOINT.size

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.index_bytes + self.body_bytes


def file_bytes(entry: StoredSequence) -> int:
    """The size of the file for an entry."""
    return entry.bytes + _HEAD.size + len(entry.checkpoints) * _CHECKPOINT.size


def write_entry(file: BinaryIO, fingerprint: bytes, entry: StoredSequence) -> None:
    """Write an entry; raises OSError."""
    items = entry.checkpoints.items
    table = b"".join(_CHECKPOINT.pack(item.length, len(item.state)) for item in items)
    index = entry.tokens.tobytes() + table
    body_sum = 0
    for state in (*(item.state for item in items), entry.state):
        body_sum = zlib.crc32(state, body_sum)
    counts = (len(entry.tokens), len(items), len(entry.state), body_sum)
    file.write(_HEAD.pack(_MAGIC, fingerprint, *counts, _index_sum(fingerprint, counts, index)))
    file.write(index)
    for state in (*(item.state for item in items), entry.state):
        file.write(state)


def read_index(path: Path, fingerprint: bytes) -> SavedSequence:
    """Read the index of a file; raises OSError or DamagedFileError."""
    with path.open("rb", buffering=0) as file:
        return _index(path, file, fingerprint)


def read_entry(path: Path, fingerprint: bytes) -> StoredSequence:
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
    checkpoints = Checkpoints()
    for length, state in zip(saved.lengths, body, strict=False):
        checkpoints.add(Checkpoint(length, state))
    return StoredSequence(saved.tokens, body[-1], checkpoints)


def _index(path: Path, file: BinaryIO | FileIO, fingerprint: bytes) -> SavedSequence:
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD.size) or b""
    if len(head) < _HEAD.size:
        raise DamagedFileError("it is cut off")
    magic, print_, tokens, checkpoints, state, body_sum, index_sum = _HEAD.unpack(head)
    if magic != _MAGIC or print_ != fingerprint:
        raise DamagedFileError("its head is another one's")
    numbers = packed(())
    width = tokens * numbers.itemsize
    length = width + checkpoints * _CHECKPOINT.size
    index = file.read(min(length, size)) or b""
    if len(index) < length:
        raise DamagedFileError("it is cut off")
    if _index_sum(fingerprint, (tokens, checkpoints, state, body_sum), index) != index_sum:
        raise DamagedFileError("its index is damaged")
    numbers.frombytes(index[:width])
    table = tuple(_CHECKPOINT.iter_unpack(index[width:]))
    saved = SavedSequence(path, numbers, table, state, body_sum)
    if saved.bytes != size:
        raise DamagedFileError("it is cut off")
    return saved


def _index_sum(fingerprint: bytes, counts: tuple[int, ...], index: bytes) -> int:
    return zlib.crc32(index, zlib.crc32(repr(counts).encode(), zlib.crc32(fingerprint)))
