"""Conversations that lost their sequence, kept in host memory: the cache's second tier."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.cache.prefixes import common_prefix, packed, usable_prefix
from shepherd.backends.llamacpp.cache.sequence import Checkpoints

FIRST_RATE = 1e9
"""Bytes per second that a restore is expected to bring before one was measured."""


@dataclass(slots=True, eq=False)
class StoredSequence:
    """A sequence's whole state, and the tokens and checkpoints that belong to it.

    `used` is when the conversation was used last, in seconds since the epoch.
    """

    tokens: "array[int]"
    state: bytearray
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    used: float = 0.0

    @property
    def bytes(self) -> int:
        """What it takes."""
        tokens = len(self.tokens) * self.tokens.itemsize
        return len(self.state) + tokens + self.checkpoints.bytes


class HostCache:
    """Entries that never take more than `capacity` bytes; the one unused for longest goes first.

    An entry that another one continues is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evictions = 0
        self._entries: list[StoredSequence] = []
        self._rate = FIRST_RATE

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[StoredSequence]:
        """What is there, the one unused for longest first."""
        return self._entries

    @property
    def bytes(self) -> int:
        """What all entries take."""
        return sum(entry.bytes for entry in self._entries)

    def wants(self, tokens: Sequence[int], size: int) -> bool:
        """Whether a state of `size` bytes would fit and is not there yet."""
        width = packed(()).itemsize
        return size + len(tokens) * width <= self.capacity and not self.holds(tokens)

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether an entry begins with these tokens, or has no others."""
        tokens = packed(tokens)
        return any(continues(entry.tokens, tokens) for entry in self._entries)

    def put(self, new: StoredSequence) -> list[StoredSequence]:
        """Keep an entry; gives those that had to go for it, or itself if it is too big."""
        if new.bytes > self.capacity:
            return [new]
        kept = [e for e in self._entries if not continues(new.tokens, e.tokens)]
        self._entries = [*kept, new]
        gone: list[StoredSequence] = []
        while self.bytes > self.capacity:
            gone.append(self._entries.pop(0))
        self.evictions += len(gone)
        return gone

    def find(self, prompt: Sequence[int], *, rolls_back: bool) -> tuple[StoredSequence | None, int]:
        """The entry that a prompt can start from farthest, and how far."""
        prompt = packed(prompt)
        best, length = None, 0
        for entry in self._entries:
            lengths = entry.checkpoints.lengths
            usable = usable_prefix(entry.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = entry, usable
        return best, length

    def remove(self, entry: StoredSequence) -> None:
        """Give an entry up; it may be gone already."""
        if entry in self._entries:
            self._entries.remove(entry)

    def touch(self, entry: StoredSequence) -> None:
        """Note that an entry was used."""
        self._entries.remove(entry)
        self._entries.append(entry)

    def seconds(self, size: int) -> float:
        """How long restoring a state of `size` bytes will take."""
        return size / self._rate

    def note_restore(self, size: int, seconds: float) -> None:
        """Learn from how long restoring one of `size` bytes took."""
        if seconds > 0:
            self._rate = (self._rate + size / seconds) / 2


def continues(longer: Sequence[int], shorter: Sequence[int]) -> bool:
    """Whether the one begins with all of the other; both packed."""
    return common_prefix(longer, shorter) == len(shorter)
