"""Conversations on disk for the next start: the third tier of the cache."""

import logging
import shutil
from array import array
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter, time
from typing import Any, BinaryIO

from msgspec import Struct

from shepherd.backends.llamacpp.cache import disk_file, prefixes, sequence
from shepherd.backends.llamacpp.cache.prefixes import Query
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.devices import available_memory
from shepherd.backends.llamacpp.native.model import configured_adapters
from shepherd.catalog.model_files import parts_of
from shepherd.config.llamacpp import LlamaCppSection

logger = logging.getLogger(__name__)

MIN_TOKENS = 256
"""Shorter prompts are not worth a file."""

INITIAL_RATE = 5e8
"""The assumed reading speed before any measurement, in bytes per second."""

MAX_PENDING_BYTES = 512 * 1024 * 1024
"""Bytes that may wait to be written, in addition to one entry of any size."""

DISK_DIVISOR = 10
MAX_DISK_BYTES = 8 * 1024**3
"""By default the cache uses a tenth of the free disk, at most 8 GiB."""

_MIB = 1024 * 1024

MEMORY_DIVISOR = 8
MAX_MEMORY_BYTES = 4 * 1024**3
"""By default the cache uses an eighth of the free memory, at most 4 GiB."""

_HEADER = 1024 * 1024
_SAMPLES, _SAMPLE_BYTES = 32, 4096
"""The bytes of a model that identify it: its beginning, and samples of its weights."""
_DIGITS = 12
"""Of each hash in a file's name."""

_CONTEXT_FIELDS = """
n_ctx rope_scaling_type attention_type flash_attn_type rope_freq_base rope_freq_scale
yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_orig_ctx type_k type_v swa_full
kv_unified
"""


class Fingerprint(Struct, frozen=True):
    """`place` stands for the model's path, `origin` for its content and llama.cpp's build.

    `context` stands for the context's settings. States with another context belong to other
    settings; states with another origin are useless.
    """

    place: str
    origin: str
    context: str

    @property
    def prefix(self) -> str:
        """The prefix of the file names."""
        return f"{self.place}-{self.origin}-{self.context}-"

    @property
    def digest(self) -> bytes:
        """32 bytes to store in the files."""
        return sha256(self.prefix.encode()).digest()

    def is_outdated(self, name: str) -> bool:
        """Whether a file belongs to an earlier model at the same path, or to an earlier build."""
        place, _, rest = name.partition("-")
        return place == self.place and not rest.startswith(f"{self.origin}-")


def fingerprint(model: Path, params: Any, adapters: Iterable[str] = ()) -> Fingerprint:
    """The fingerprint of a model file with context parameters and identities of adapters.

    Raises OSError if a file can't be read.
    """
    context = [f"{name}={getattr(params, name)}" for name in _CONTEXT_FIELDS.split()]
    with model.open("rb") as file:
        content = sha256(file.read(_HEADER) + _samples(file, model.stat().st_size)).hexdigest()
    return Fingerprint(
        _short(str(model.resolve())),
        _short(content, *map(_size_and_date, parts_of(model)), _build()),
        _short(*context, *adapters),
    )


def _samples(file: BinaryIO, size: int) -> bytes:
    """Samples of the weights: a file of the same size and date may have others."""
    pieces: list[bytes] = []
    for number in range(_SAMPLES):
        file.seek(size * number // _SAMPLES)
        pieces.append(file.read(_SAMPLE_BYTES))
    return b"".join(pieces)


def _size_and_date(path: Path) -> str:
    """The size and the date of a file, which change when it is replaced."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _build() -> str:
    """The identity of llama.cpp's library, whose builds may differ, and of the files' format."""
    lib = bindings()
    library = Path(getattr(getattr(lib, "_lib", None), "_name", lib.__file__))
    return f"{_size_and_date(library)} {lib.LLAMA_STATE_SEQ_VERSION} {disk_file.MAGIC!r}"


def _short(*parts: str) -> str:
    """A hash of these parts in a few digits."""
    return sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


class DiskCache:
    """The files of one model in a folder that other models share. Owner thread only.

    Entries passed to `post` are written by a separate thread. A damaged file is removed, and an
    entry that can't be written is dropped; both are only logged.
    """

    def __init__(self, folder: disk_file.StateFolder, fingerprint: Fingerprint) -> None:
        """Read the index; files that can never be used again are removed."""
        self.evictions = 0
        self._folder = folder
        self._fingerprint = fingerprint
        self._digest = fingerprint.digest
        self._known: dict[str, disk_file.SavedSequence] = {}
        self._version = -1
        """That of the folder at the last look; -1 if it must be looked at again."""
        self._rate = INITIAL_RATE
        self._queue: SimpleQueue[sequence.StoredSequence | None] = SimpleQueue()
        self._waiting = 0
        """Bytes in the queue, and of the entry that is being written."""
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
    def entries(self) -> list[disk_file.SavedSequence]:
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

    def find(self, query: Query, *, rolls_back: bool) -> tuple[disk_file.SavedSequence | None, int]:
        """The file with the longest usable prefix of a prompt, and its length."""
        self._refresh()
        best, length = None, 0
        for saved in self._known.values():
            lengths = saved.lengths
            prompt = query.part_for(saved.tokens, saved.owner)
            usable = prefixes.usable_prefix(saved.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = saved, usable
        return best, length

    def seconds(self, saved: disk_file.SavedSequence) -> float:
        """The expected seconds to read a file."""
        return saved.body_bytes / self._rate

    def load(self, saved: disk_file.SavedSequence) -> sequence.StoredSequence | None:
        """Read a file; None if it is damaged or missing."""
        started = perf_counter()
        try:
            entry = disk_file.read_entry(saved.path, self._digest)
        except FileNotFoundError:  # another process has removed it
            entry = None
        except (OSError, disk_file.DamagedFileError) as error:
            self._discard(saved.path, error)
            entry = None
        if entry is None:
            self._known.pop(saved.path.name, None)
            return None
        self._rate = (self._rate + saved.body_bytes / (perf_counter() - started)) / 2
        entry.used = time()  # this use is the latest, for all processes that share the folder
        self._folder.touch(saved.path, entry.used)
        return entry

    def discard(self, saved: disk_file.SavedSequence) -> None:
        """Remove a file whose state llama.cpp refuses."""
        self._discard(saved.path, disk_file.DamagedFileError("llama.cpp refuses it"))
        self._known.pop(saved.path.name, None)

    def wants(self, one: sequence.Owned, size: int) -> bool:
        """Whether a state of `size` bytes is worth a file and is not saved yet."""
        if len(one.packed) < MIN_TOKENS or size > self._folder.capacity:
            return False
        # A longer conversation that begins so has all of its tokens.
        return not any(sequence.covers(saved, one) for saved in self._known.values())

    def post(self, entry: sequence.StoredSequence) -> None:
        """Write an entry later; it is dropped if too much is waiting."""
        if not self.wants(entry, disk_file.file_bytes(entry)):
            return
        # The first one is taken at any size.
        if self._waiting and self._waiting + entry.bytes > MAX_PENDING_BYTES:
            logger.info("A conversation was not saved: the disk is too slow")
            return
        if self._writer is None:
            self._writer = Thread(target=self._write_all, name="llama.cpp cache", daemon=True)
            self._writer.start()
        self._note_waiting(entry.bytes)
        self._queue.put(entry)

    def save(self, entry: sequence.StoredSequence) -> None:
        """Write an entry now, if it is worth a file."""
        self._refresh()
        if self.wants(entry, disk_file.file_bytes(entry)):
            self._write(entry)

    def close(self) -> None:
        """Wait until all posted entries are written."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
            self._writer = None

    def _write_all(self) -> None:
        """The writing thread, until `close` puts None into the queue."""
        while (entry := self._queue.get()) is not None:
            self._write(entry)
            self._note_waiting(-entry.bytes)

    def _note_waiting(self, change: int) -> None:
        """Change the number of waiting bytes, which both threads do."""
        with self._count:
            self._waiting += change

    def _write(self, entry: sequence.StoredSequence) -> None:
        """Write one file. Runs on both threads: it changes only the folder and counters."""
        content = entry.tokens.tobytes() + entry.owner.name.encode()
        name = f"{self._fingerprint.prefix}{sha256(content).hexdigest()[:16]}"
        try:
            evictions = self._folder.write(
                f"{name}{disk_file.SUFFIX}",
                disk_file.file_bytes(entry),
                entry.used,
                lambda file: disk_file.write_entry(file, self._digest, entry),
            )
        except OSError as error:
            logger.warning("A conversation could not be saved in %s: %s", self._folder.path, error)
            return
        if evictions is not None:
            self.evictions += evictions
            for saved in self.entries:  # what the new file continues, unless it is that file itself
                is_shorter = len(saved.tokens) < len(entry.tokens)
                if is_shorter and sequence.covers(entry, saved):
                    _remove(saved.path)
        # The index lacks the new file.
        self._version = -1

    def _refresh(self) -> None:
        """Update the index, also for changes by other processes."""
        try:
            version = self._folder.version()
            if version == self._version:
                return
            files = self._folder.files()
        except OSError:  # the folder can't be read: nothing in it can be used now
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
        """Read the index of a file; a damaged one is removed."""
        try:
            self._known[name] = disk_file.read_index(path, self._digest)
        except FileNotFoundError:  # another process has removed it
            return
        except (OSError, disk_file.DamagedFileError) as error:
            self._discard(path, error)

    def _discard(self, path: Path, error: Exception) -> None:
        """Remove a file that can't be used; only the log has the reason."""
        logger.warning("A saved conversation can't be used and is removed (%s): %s", path, error)
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file of the cache; a failure is only logged, because the file costs only space."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s can't be removed: %s", path, error)


def disk_capacity(settings: LlamaCppSection, folder: Path) -> int:
    """The maximum size of all saved conversations in bytes; raises OSError."""
    if settings.cache_disk_mib >= 0:  # -1 chooses by the free space
        return settings.cache_disk_mib * _MIB
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    # What the cache itself takes counts as free, or it would shrink with each start.
    used_here = sum(file.bytes for file in disk_file.StateFolder(folder, 0).files())
    return min(MAX_DISK_BYTES, (shutil.disk_usage(existing).free + used_here) // DISK_DIVISOR)


def open_disk_cache(
    folder: Path | None, settings: LlamaCppSection, model: Path, params: Any
) -> DiskCache | None:
    """The disk tier for a model with these context parameters; None if it is off.

    A folder that can't be used is only logged.
    """
    if folder is None or settings.cache_disk_mib == 0:
        return None
    try:
        states = disk_file.StateFolder(folder, disk_capacity(settings, folder))
        adapters = [adapter.identity for adapter in configured_adapters(settings)]
        return DiskCache(states, fingerprint(model, params, adapters))
    except OSError as error:
        logger.warning("Conversations are not saved in %s: %s", folder, error)
        return None


def cache_capacity(settings: LlamaCppSection, free: int | None = None) -> int:
    """The maximum size of all sequences in host memory, in bytes; -1 chooses by the `free` ones."""
    if settings.cache_ram_mib >= 0:
        return settings.cache_ram_mib * _MIB
    free = available_memory() if free is None else free
    return min(MAX_MEMORY_BYTES, free // MEMORY_DIVISOR)
