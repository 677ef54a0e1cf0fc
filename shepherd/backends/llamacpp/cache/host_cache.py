"""Conversations in host memory: the second tier of the cache."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.cache.prefixes import common_prefix, packed, usable_prefix
from shepherd.backends.llamacpp.cache.sequence import Checkpoints

INITIAL_RATE = 1e9
"""The assumed speed of a restore before any measurement, in bytes per second."""


@dataclass(slots=True, eq=False)
class StoredSequence:
    """The whole state of a sequence, with its tokens and checkpoints.

    `used` is the time of the last use, in seconds since the epoch.
    """

    tokens: "array[int]"
    state: bytearray
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    used: float = 0.0

    @property
    def bytes(self) -> int:
        """The size of tokens, state and checkpoints."""
        tokens = len(self.tokens) * self.tokens.itemsize
        return len(self.state) + tokens + self.checkpoints.bytes


class HostCache:
    """A least-recently-used cache of at most `capacity` bytes.

    An entry that is a prefix of another one is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evictions = 0
        self._entries: list[StoredSequence] = []
        self._rate = INITIAL_RATE

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[StoredSequence]:
        """All entries, least recently used first."""
        return self._entries

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return sum(entry.bytes for entry in self._entries)

    def wants(self, tokens: Sequence[int], size: int) -> bool:
        """Whether a state of `size` bytes fits and is not stored yet."""
        width = packed(()).itemsize
        return size + len(tokens) * width <= self.capacity and not self.holds(tokens)

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether an entry begins with these tokens."""
        tokens = packed(tokens)
        return any(continues(entry.tokens, tokens) for entry in self._entries)

    def put(self, new: StoredSequence) -> list[StoredSequence]:
        """Store an entry; returns the evicted ones, or the entry itself if it is too large."""
        if new.bytes > self.capacity:
            return [new]
        kept = [e for e in self._entries if not continues(new.tokens, e.tokens)]
        self._entries = [*kept, new]
        evicted: list[StoredSequence] = []
        while self.bytes > self.capacity:
            evicted.append(self._entries.pop(0))
        self.evictions += len(evicted)
        return evicted

    def find(self, prompt: Sequence[int], *, rolls_back: bool) -> tuple[StoredSequence | None, int]:
        """The entry with the longest usable prefix of a prompt, and its length."""
        prompt = packed(prompt)
        best, length = None, 0
        for entry in self._entries:
            lengths = entry.checkpoints.lengths
            usable = usable_prefix(entry.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = entry, usable
        return best, length

    def remove(self, entry: StoredSequence) -> None:
        """Remove an entry, if it is still stored."""
        if entry in self._entries:
            self._entries.remove(entry)

    def touch(self, entry: StoredSequence) -> None:
        """Mark an entry as used."""
        self._entries.remove(entry)
        self._entries.append(entry)

    def seconds(self, size: int) -> float:
        """The expected seconds to restore a state of `size` bytes."""
        return size / self._rate

    def note_restore(self, size: int, seconds: float) -> None:
        """Learn from a restore of `size` bytes."""
        if seconds > 0:
            self._rate = (self._rate + size / seconds) / 2


def continues(longer: Sequence[int], shorter: Sequence[int]) -> bool:
    """Whether `longer` begins with all of `shorter`; both are packed."""
    return common_prefix(longer, shorter) == len(shorter)
