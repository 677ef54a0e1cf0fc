"""The cache's tiers behind memory, and what each of them holds."""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from shepherd.backends.base import CacheTier
from shepherd.backends.llamacpp.cache import disk_cache, disk_file
from shepherd.backends.llamacpp.cache.prefixes import Query
from shepherd.backends.llamacpp.cache.sequence import CachedSequence, HostCache, StoredSequence
from shepherd.backends.llamacpp.native.context import RecentLine

_LEARNING_RATE = 0.05
"""The weight of one batch in what is known of batches."""
_MIN_SPREAD = 256.0
"""Cells by which the measured batches must differ, as a standard deviation."""


MEMORY, HOST, DISK = "memory", "host", "disk"
"""The names of the tiers: llama.cpp's memory, host memory, and files."""


class CacheCounts(Struct):
    """Counts of cache events since the model was loaded.

    `hits` are prompts that reuse something, and `tokens` what they reuse, by the name of the tier.
    """

    hits: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    cleared: int = 0
    swap_out: int = 0
    gaps_closed: int = 0

    def note_hit(self, tier: str, tokens: int) -> None:
        """Count a prompt that reuses so many tokens of a tier."""
        self.hits[tier] += 1
        self.tokens[tier] += tokens


class StoredPrefix(Struct, frozen=True):
    """A stored prefix of a prompt: its `length` in tokens, and the `seconds` to restore it."""

    entry: StoredSequence | disk_file.SavedSequence
    length: int
    seconds: float

    @property
    def tier(self) -> str:
        """The name of the tier that has it."""
        return DISK if isinstance(self.entry, disk_file.SavedSequence) else HOST


class Tiers:
    """Host memory, and the disk if it is used."""

    def __init__(self, host: HostCache, disk: disk_cache.DiskCache | None) -> None:
        self.host = host
        self.disk = disk

    def report(self, live: Sequence[CachedSequence], counts: CacheCounts) -> tuple[CacheTier, ...]:
        """What each tier holds: llama.cpp's memory has the `live` sequences, without evictions."""
        host, disk = self.host, self.disk
        # Entries, bytes and evictions.
        in_memory = (len(live), sum(sequence.bytes for sequence in live), counts.cleared)
        in_host = (len(host), host.bytes, host.evictions)
        on_disk = (0, 0, 0) if disk is None else (len(disk), disk.bytes, disk.evictions)
        hits, tokens = counts.hits, counts.tokens
        return tuple(
            CacheTier(name, entries, size, hits[name], tokens[name], evictions)
            for name, (entries, size, evictions) in (
                (MEMORY, in_memory),
                (HOST, in_host),
                (DISK, on_disk),
            )
        )

    def find(self, query: Query, *, rolls_back: bool) -> StoredPrefix | None:
        """The entry with the longest usable prefix of a prompt."""
        entry, length = self.host.find(query, rolls_back=rolls_back)
        best: StoredPrefix | None = None
        if entry is not None:
            best = StoredPrefix(entry, length, self.host.seconds(len(entry.state)))
        if self.disk is not None:
            saved, length_on_disk = self.disk.find(query, rolls_back=rolls_back)
            if saved is not None and length_on_disk > length:
                # It is read into host memory, and from there into llama.cpp's.
                seconds = self.disk.seconds(saved) + self.host.seconds(saved.body_bytes)
                best = StoredPrefix(saved, length_on_disk, seconds)
        return best

    def take(self, prefix: StoredPrefix) -> StoredSequence | None:
        """The stored sequence, read from disk if needed; None if it no longer exists."""
        if isinstance(prefix.entry, StoredSequence):
            self.host.touch(prefix.entry)
            return prefix.entry
        return self.disk.load(prefix.entry) if self.disk is not None else None

    def discard(self, prefix: StoredPrefix) -> None:
        """Remove an entry that llama.cpp refuses even if all memory is free."""
        if isinstance(prefix.entry, StoredSequence):
            self.host.remove(prefix.entry)
        elif self.disk is not None:
            self.disk.discard(prefix.entry)

    def wants(self, sequence: CachedSequence, size: int) -> bool:
        """Whether a sequence with a state of `size` bytes should be stored."""
        if self.host.wants(sequence, size):
            return True
        # The disk takes what has no place in host memory.
        if self.host.holds(sequence) or self.disk is None:
            return False
        return self.disk.wants(sequence, size)

    def put(self, entry: StoredSequence) -> None:
        """Store an entry in host memory; entries that it evicts are written to disk later."""
        for evicted in self.host.put(entry):
            if self.disk is not None:
                self.disk.post(evicted)


class Crowding:
    """Compares attention over the cells of an idle conversation with putting it away.

    Attention computes over all cells in use, also over the masked ones of other conversations. On
    a CPU a fixed threshold decides. On a GPU the cost of a cell is learned: a line through the
    seconds of a token, by the cells in use. Before that is known, the idle conversation stays.
    """

    def __init__(self, threshold: int | None) -> None:
        """`threshold` is in new tokens times idle tokens; None learns instead."""
        self._threshold = threshold
        self._line = RecentLine(_LEARNING_RATE)
        """The seconds of a token, by the cells in use."""

    @property
    def learns(self) -> bool:
        """Whether measurements decide."""
        return self._threshold is None

    @property
    def pair_seconds(self) -> float:
        """The measured seconds for a new token and one more cell; 0 before it is known."""
        return 0.0 if self._line.variance < _MIN_SPREAD**2 else self._line.slope

    def note(self, tokens: int, cells: int, seconds: float) -> None:
        """Learn from a batch of prompts with so many cells in use."""
        self._line.add(cells, seconds / tokens)

    def pays(self, new: int, idle: int, swap_seconds: Callable[[], float]) -> bool:
        """Whether to put away `idle` tokens before `new` ones are read.

        `swap_seconds` gives the time to put them away and to bring them back.
        """
        if self._threshold is not None:
            return new * idle >= self._threshold
        return new * idle * self.pair_seconds > swap_seconds()
