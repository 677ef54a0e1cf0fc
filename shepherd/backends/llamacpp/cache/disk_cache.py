"""Conversations on disk for the next start: the third tier of the cache."""

import logging
from array import array
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter, time

from shepherd.backends.llamacpp.cache.disk_file import (
    SUFFIX,
    DamagedFileError,
    SavedSequence,
    StateFolder,
    file_bytes,
    read_entry,
    read_index,
    write_entry,
)
from shepherd.backends.llamacpp.cache.fingerprint import Fingerprint
from shepherd.backends.llamacpp.cache.prefixes import usable_prefix
from shepherd.backends.llamacpp.cache.sequence import StoredSequence, continues

logger = logging.getLogger(__name__)

MIN_TOKENS = 256
"""Shorter prompts are not worth a file."""

INITIAL_RATE = 5e8
"""The assumed reading speed before any measurement, in bytes per second."""

MAX_PENDING_BYTES = 512 * 1024 * 1024
"""Bytes that may wait to be written, in addition to one entry of any size."""


class DiskCache:
    """The files of one model in a folder that other models share. Owner thread only.

    Entries passed to `post` are written by a separate thread. A damaged file is removed, and an
    entry that can't be written is dropped; both are only logged.
    """

    def __init__(self, folder: StateFolder, fingerprint: Fingerprint) -> None:
        """Read the index; files that can never be used again are removed."""
        self.evictions = 0
        self._folder = folder
        self._fingerprint = fingerprint
        self._digest = fingerprint.digest
        self._known: dict[str, SavedSequence] = {}
        self._version = -1
        self._rate = INITIAL_RATE
        self._queue: SimpleQueue[StoredSequence | None] = SimpleQueue()
        self._waiting = 0
        self._count = Lock()
        self._writer: Thread | None = None
        for file in folder.files():
            if fingerprint.is_outdated(file.path.name):
                _remove(file.path)
        self._refresh()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def bytes(self) -> int:
        """The size of this model's files."""
        return sum(saved.bytes for saved in self._known.values())

    @property
    def entries(self) -> list[SavedSequence]:
        """The index of all files."""
        return list(self._known.values())

    def prompts(self, max_tokens: int) -> list["array[int]"]:
        """The tokens of the most recent files, at most `max_tokens` in total."""
        chosen: list[array[int]] = []
        for saved in reversed(self.entries):
            max_tokens -= len(saved.tokens)
            if max_tokens < 0:
                break
            chosen.append(saved.tokens)
        return chosen

    def find(self, prompt: "array[int]", *, rolls_back: bool) -> tuple[SavedSequence | None, int]:
        """The file with the longest usable prefix of a packed prompt, and its length."""
        self._refresh()
        best, length = None, 0
        for saved in self._known.values():
            lengths = saved.lengths
            usable = usable_prefix(saved.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = saved, usable
        return best, length

    def seconds(self, saved: SavedSequence) -> float:
        """The expected seconds to read a file."""
        return saved.body_bytes / self._rate

    def load(self, saved: SavedSequence) -> StoredSequence | None:
        """Read a file; None if it is damaged or missing."""
        started = perf_counter()
        try:
            entry = read_entry(saved.path, self._digest)
        except FileNotFoundError:
            entry = None
        except (OSError, DamagedFileError) as error:
            self._discard(saved.path, error)
            entry = None
        if entry is None:
            self._known.pop(saved.path.name, None)
            return None
        self._rate = (self._rate + saved.body_bytes / (perf_counter() - started)) / 2
        entry.used = time()
        self._folder.touch(saved.path, entry.used)
        return entry

    def discard(self, saved: SavedSequence) -> None:
        """Remove a file whose state llama.cpp refuses."""
        self._discard(saved.path, DamagedFileError("llama.cpp refuses it"))
        self._known.pop(saved.path.name, None)

    def wants(self, tokens: "array[int]", size: int) -> bool:
        """Whether a state of `size` bytes is worth a file and is not saved yet."""
        if len(tokens) < MIN_TOKENS or size > self._folder.capacity:
            return False
        return not any(continues(saved.tokens, tokens) for saved in self._known.values())

    def post(self, entry: StoredSequence) -> None:
        """Write an entry later; it is dropped if too much is waiting."""
        if not self.wants(entry.tokens, file_bytes(entry)):
            return
        if self._waiting and self._waiting + entry.bytes > MAX_PENDING_BYTES:
            logger.info("A conversation was not saved: the disk is too slow")
            return
        if self._writer is None:
            self._writer = Thread(target=self._write_all, name="llama.cpp cache", daemon=True)
            self._writer.start()
        self._note_waiting(entry.bytes)
        self._queue.put(entry)

    def save(self, entry: StoredSequence) -> None:
        """Write an entry now, if it is worth a file."""
        self._refresh()
        if self.wants(entry.tokens, file_bytes(entry)):
            self._write(entry)

    def close(self) -> None:
        """Wait until all posted entries are written."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
            self._writer = None

    def _write_all(self) -> None:
        while (entry := self._queue.get()) is not None:
            self._write(entry)
            self._note_waiting(-entry.bytes)

    def _note_waiting(self, change: int) -> None:
        with self._count:
            self._waiting += change

    def _write(self, entry: StoredSequence) -> None:
        """Write one file. Runs on both threads: it changes only the folder and counters."""
        name = f"{self._fingerprint.prefix}{sha256(entry.tokens.tobytes()).hexdigest()[:16]}"
        try:
            evictions = self._folder.write(
                f"{name}{SUFFIX}",
                file_bytes(entry),
                entry.used,
                lambda file: write_entry(file, self._digest, entry),
            )
        except OSError as error:
            logger.warning("A conversation could not be saved in %s: %s", self._folder.path, error)
            return
        if evictions is not None:
            self.evictions += evictions
            self._remove_beginnings(entry)
        self._version = -1

    def _remove_beginnings(self, entry: StoredSequence) -> None:
        """Remove the files that the new entry continues."""
        for saved in self.entries:
            shorter = len(saved.tokens) < len(entry.tokens)
            if shorter and continues(entry.tokens, saved.tokens):
                _remove(saved.path)

    def _refresh(self) -> None:
        """Update the index, also for changes by other processes."""
        try:
            version = self._folder.version()
            if version == self._version:
                return
            files = self._folder.files()
        except OSError:
            self._known.clear()
            return
        self._version = version
        paths = {
            file.path.name: file.path
            for file in files
            if file.path.name.startswith(self._fingerprint.prefix)
        }
        self._known = {name: saved for name, saved in self._known.items() if name in paths}
        for name, path in paths.items():
            if name not in self._known:
                self._learn(name, path)

    def _learn(self, name: str, path: Path) -> None:
        try:
            self._known[name] = read_index(path, self._digest)
        except FileNotFoundError:
            return
        except (OSError, DamagedFileError) as error:
            self._discard(path, error)

    def _discard(self, path: Path, error: Exception) -> None:
        logger.warning("A saved conversation can't be used and is removed (%s): %s", path, error)
        _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s can't be removed: %s", path, error)
