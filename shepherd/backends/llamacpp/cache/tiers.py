"""The cache's tiers behind memory, and what each of them holds."""

from array import array
from dataclasses import dataclass

from shepherd.backends.base import CacheTier
from shepherd.backends.llamacpp.cache.disk_cache import DiskCache, SavedSequence
from shepherd.backends.llamacpp.cache.host_cache import HostCache, StoredSequence


@dataclass(slots=True)
class CacheCounts:
    """What the cache did since the model was loaded."""

    memory_hits: int = 0
    memory_tokens: int = 0
    host_hits: int = 0
    host_tokens: int = 0
    disk_hits: int = 0
    disk_tokens: int = 0
    misses: int = 0
    cleared: int = 0
    put_away: int = 0
    gaps_closed: int = 0

    def note(self, tokens: int, *, restored: bool) -> None:
        """A prompt begins with so many tokens that were known; restored ones count elsewhere."""
        if tokens and not restored:
            self.memory_hits += 1
            self.memory_tokens += tokens
        elif not tokens:
            self.misses += 1

    def note_restored(self, tokens: int, *, on_disk: bool) -> None:
        """A prompt's beginning came back into memory."""
        if not tokens:
            return
        if on_disk:
            self.disk_hits += 1
            self.disk_tokens += tokens
        else:
            self.host_hits += 1
            self.host_tokens += tokens


@dataclass(frozen=True, slots=True)
class Held:
    """What one tier holds, and how many entries it gave up."""

    entries: int = 0
    bytes: int = 0
    evictions: int = 0


def cache_tiers(counts: CacheCounts, memory: Held, host: Held, disk: Held) -> tuple[CacheTier, ...]:
    """What users are told."""
    rows = (
        ("memory", memory, counts.memory_hits, counts.memory_tokens),
        ("host", host, counts.host_hits, counts.host_tokens),
        ("disk", disk, counts.disk_hits, counts.disk_tokens),
    )
    return tuple(
        CacheTier(name, held.entries, held.bytes, hits, tokens, held.evictions)
        for name, held, hits, tokens in rows
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A stored beginning of a prompt: `length` tokens of it, after so many `seconds`."""

    entry: StoredSequence | SavedSequence
    length: int
    seconds: float

    @property
    def on_disk(self) -> bool:
        """Whether it has to be read first."""
        return isinstance(self.entry, SavedSequence)


class Tiers:
    """Host memory, and behind it the disk if there is one."""

    def __init__(self, host: HostCache, disk: DiskCache | None) -> None:
        self.host = host
        self.disk = disk

    @property
    def exist(self) -> bool:
        """Whether anything could be kept."""
        return self.host.capacity > 0 or self.disk is not None

    def held(self) -> tuple[Held, Held]:
        """What is in host memory and on disk."""
        host, disk = self.host, self.disk
        saved = Held(len(disk), disk.bytes, disk.evictions) if disk is not None else Held()
        return Held(len(host), host.bytes, host.evictions), saved

    def find(self, prompt: "array[int]", *, rolls_back: bool) -> Found | None:
        """The stored entry that a packed prompt can start from farthest."""
        entry, length = self.host.find(prompt, rolls_back=rolls_back)
        best = (
            Found(entry, length, self.host.seconds(len(entry.state))) if entry is not None else None
        )
        if self.disk is not None:
            saved, farther = self.disk.find(prompt, rolls_back=rolls_back)
            if saved is not None and farther > length:
                seconds = self.disk.seconds(saved) + self.host.seconds(saved.body_bytes)
                best = Found(saved, farther, seconds)
        return best

    def take(self, found: Found) -> StoredSequence | None:
        """What was found, read from the disk if need be; None if it is not there any more."""
        if isinstance(found.entry, StoredSequence):
            self.host.touch(found.entry)
            return found.entry
        return self.disk.load(found.entry) if self.disk is not None else None

    def discard(self, found: Found) -> None:
        """Give up what llama.cpp refuses even with all memory free."""
        if isinstance(found.entry, StoredSequence):
            self.host.remove(found.entry)
        elif self.disk is not None:
            self.disk.discard(found.entry)

    def wants(self, tokens: "array[int]", size: int) -> bool:
        """Whether a sequence with so big a state would be kept."""
        if self.host.wants(tokens, size):
            return True
        if self.host.holds(tokens) or self.disk is None:
            return False
        return self.disk.wants(tokens, size)

    def put(self, entry: StoredSequence) -> None:
        """Keep an entry in host memory; what has to go for it goes to the disk in a while."""
        for gone in self.host.put(entry):
            if self.disk is not None:
                self.disk.post(gone)
