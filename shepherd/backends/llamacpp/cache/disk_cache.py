"""Conversations on disk, for the next start: the cache's third tier."""

import logging
from array import array
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter, time

from shepherd.backends.llamacpp.cache.disk_file import (
    DamagedFileError,
    SavedSequence,
    file_bytes,
    read_entry,
    read_index,
    write_entry,
)
from shepherd.backends.llamacpp.cache.fingerprint import Fingerprint
from shepherd.backends.llamacpp.cache.host_cache import StoredSequence, continues
from shepherd.backends.llamacpp.cache.prefixes import usable_prefix
from shepherd.backends.llamacpp.cache.state_folder import SUFFIX, StateFolder

logger = logging.getLogger(__name__)

LEAST_TOKENS = 256
"""Shorter prompts are read again sooner than they are worth a file."""

FIRST_RATE = 5e8
"""Bytes per second that reading is expected to bring before it was measured."""

MOST_WAITING = 512 * 1024 * 1024
"""Bytes that may wait to be written, beside one entry of any size: memory beyond the host's cap."""


class DiskCache:
    """One model's files in a folder that others share. Owner thread only.

    What `post` is given is written by a thread of its own. A file that is damaged is removed; what
    can't be written is only lost: neither is an error for anybody.
    """

    def __init__(self, folder: StateFolder, fingerprint: Fingerprint) -> None:
        """Look at what is there; files that can never be used again are removed."""
        self.evictions = 0
        self._folder = folder
        self._fingerprint = fingerprint
        self._digest = fingerprint.digest
        self._known: dict[str, SavedSequence] = {}
        self._version = -1
        self._rate = FIRST_RATE
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
        """What this model's files take."""
        return sum(saved.bytes for saved in self._known.values())

    @property
    def entries(self) -> list[SavedSequence]:
        """What is there."""
        return list(self._known.values())

    def prompts(self, most: int) -> list["array[int]"]:
        """The tokens of each file, at most so many in all, as found when the cache was opened."""
        chosen: list[array[int]] = []
        for saved in reversed(self.entries):
            most -= len(saved.tokens)
            if most < 0:
                break
            chosen.append(saved.tokens)
        return chosen

    def find(self, prompt: "array[int]", *, rolls_back: bool) -> tuple[SavedSequence | None, int]:
        """The file that a packed prompt can start from farthest, and how far."""
        self._refresh()
        best, length = None, 0
        for saved in self._known.values():
            lengths = saved.lengths
            usable = usable_prefix(saved.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = saved, usable
        return best, length

    def seconds(self, saved: SavedSequence) -> float:
        """How long reading it will take."""
        return saved.body_bytes / self._rate

    def load(self, saved: SavedSequence) -> StoredSequence | None:
        """Read a file; None if it is damaged or gone."""
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
        """Remove a file that llama.cpp refuses."""
        self._discard(saved.path, DamagedFileError("llama.cpp refuses it"))
        self._known.pop(saved.path.name, None)

    def wants(self, tokens: "array[int]", size: int) -> bool:
        """Whether a state of `size` bytes is worth a file and is not there yet."""
        if len(tokens) < LEAST_TOKENS or size > self._folder.capacity:
            return False
        return not any(continues(saved.tokens, tokens) for saved in self._known.values())

    def post(self, entry: StoredSequence) -> None:
        """Write an entry in a while; it is lost when there is too much to write."""
        if not self.wants(entry.tokens, file_bytes(entry)):
            return
        if self._waiting and self._waiting + entry.bytes > MOST_WAITING:
            logger.info("A conversation was not saved: the disk is too slow")
            return
        if self._writer is None:
            self._writer = Thread(target=self._write_all, name="llama.cpp cache", daemon=True)
            self._writer.start()
        self._note_waiting(entry.bytes)
        self._queue.put(entry)

    def save(self, entry: StoredSequence) -> None:
        """Write an entry now, if it is wanted."""
        self._refresh()
        if self.wants(entry.tokens, file_bytes(entry)):
            self._write(entry)

    def close(self) -> None:
        """Write what waits to be written."""
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
        """Runs on either thread: all that it changes is the folder, and numbers."""
        name = f"{self._fingerprint.prefix}{sha256(entry.tokens.tobytes()).hexdigest()[:16]}"
        try:
            gone = self._folder.write(
                f"{name}{SUFFIX}",
                file_bytes(entry),
                entry.used,
                lambda file: write_entry(file, self._digest, entry),
            )
        except OSError as error:
            logger.warning("A conversation could not be saved in %s: %s", self._folder.path, error)
            return
        if gone is not None:
            self.evictions += gone
            self._remove_beginnings(entry)
        self._version = -1

    def _remove_beginnings(self, entry: StoredSequence) -> None:
        """Files of which there is a longer one now."""
        for saved in self.entries:
            shorter = len(saved.tokens) < len(entry.tokens)
            if shorter and continues(entry.tokens, saved.tokens):
                _remove(saved.path)

    def _refresh(self) -> None:
        """Learn of files that came and went, also by other processes."""
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
