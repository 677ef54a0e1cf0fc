"""Conversations that lost their sequence, kept in host memory: the cache's second tier."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.checkpoints import Checkpoints
from shepherd.backends.llamacpp.prefixes import common_prefix, usable_prefix

TOKEN_BYTES = 36
"""What Python takes for one token of a list."""

FIRST_RATE = 1e9
"""Bytes per second that a restore is expected to bring before one was measured."""


@dataclass(slots=True, eq=False)
class StoredSequence:
    """A sequence's whole state, and the tokens and checkpoints that belong to it."""

    tokens: list[int]
    state: bytearray
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    @property
    def bytes(self) -> int:
        """What it takes."""
        return len(self.state) + len(self.tokens) * TOKEN_BYTES + self.checkpoints.bytes


class HostCache:
    """Entries that never take more than `capacity` bytes; the one unused for longest goes first.

    An entry that another one continues is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: list[StoredSequence] = []
        self._rate = FIRST_RATE

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """What all entries take."""
        return sum(entry.bytes for entry in self._entries)

    def wants(self, tokens: Sequence[int], size: int) -> bool:
        """Whether a state of `size` bytes would fit and is not there yet."""
        if size + len(tokens) * TOKEN_BYTES > self.capacity:
            return False
        return not any(_continues(entry.tokens, tokens) for entry in self._entries)

    def put(self, new: StoredSequence) -> None:
        """Keep an entry; others go if there is no room, or the entry itself if it is too big."""
        kept = [e for e in self._entries if not _continues(new.tokens, e.tokens)]
        self._entries = [*kept, new]
        while self.bytes > self.capacity:
            del self._entries[0]

    def find(self, prompt: Sequence[int], *, rolls_back: bool) -> tuple[StoredSequence | None, int]:
        """The entry that a prompt can start from farthest, and how far."""
        best, length = None, 0
        for entry in self._entries:
            usable = usable_prefix(entry.tokens, entry.checkpoints, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = entry, usable
        return best, length

    def remove(self, entry: StoredSequence) -> None:
        """Give an entry up."""
        self._entries.remove(entry)

    def touch(self, entry: StoredSequence) -> None:
        """Note that an entry was used."""
        self._entries.remove(entry)
        self._entries.append(entry)

    def seconds(self, entry: StoredSequence) -> float:
        """How long a restore will take."""
        return len(entry.state) / self._rate

    def note_restore(self, entry: StoredSequence, seconds: float) -> None:
        """Learn from how long one took."""
        if seconds > 0:
            self._rate = (self._rate + len(entry.state) / seconds) / 2


def _continues(longer: Sequence[int], shorter: Sequence[int]) -> bool:
    return common_prefix(longer, shorter) == len(shorter)
