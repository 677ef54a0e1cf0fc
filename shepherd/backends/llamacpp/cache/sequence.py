"""One sequence of a context with its checkpoints, and sequences that are kept in host memory."""

from array import array
from collections.abc import Collection, Sequence
from time import time
from typing import Protocol

from msgspec import Struct, field

from shepherd.backends.llamacpp.cache.prefixes import (
    NOBODY,
    Owner,
    Query,
    common_prefix,
    packed,
    surplus,
    usable_prefix,
    whole,
)
from shepherd.backends.llamacpp.cache.returns import Return, last_to_return

MAX_CHECKPOINTS = 16
MAX_CHECKPOINT_BYTES = 256 * 1024 * 1024
"""The limits of one sequence's checkpoints; the last one is always kept."""

RECENT_MESSAGES = 2
CHECKPOINT_DISTANCE = 512
"""The minimum of tokens between checkpoints, except for the last messages."""

_NEAR_THE_END = 4
MAX_REREAD = 64
"""A prompt whose last message is longer has a checkpoint so near its end, too. Without control
tokens, as in ChatML for a model that does not know it, nothing tells where messages start."""

INITIAL_RATE = 1e9
"""The assumed speed of a restore before any measurement, in bytes per second."""


class Checkpoint(Struct, frozen=True):
    """The state behind the first `length` tokens of a sequence."""

    length: int
    state: bytearray


class Checkpoints(Struct, eq=False):
    """The checkpoints of a sequence, shortest first, within limits of number and size."""

    items: list[Checkpoint] = field(default_factory=list[Checkpoint])

    @property
    def bytes(self) -> int:
        """The size of all states."""
        return sum(len(item.state) for item in self.items)

    @property
    def lengths(self) -> list[int]:
        """The lengths of the checkpoints, shortest first."""
        return [item.length for item in self.items]

    def add(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint after all others; too many remove the shortest ones."""
        self.cut(checkpoint.length - 1)  # one of this length, and what came after it, is outdated
        self.items.append(checkpoint)
        while len(self.items) > MAX_CHECKPOINTS or (
            len(self.items) > 1 and self.bytes > MAX_CHECKPOINT_BYTES
        ):
            del self.items[0]

    def at(self, length: int) -> Checkpoint | None:
        """The checkpoint of exactly `length` tokens."""
        return next((item for item in self.items if item.length == length), None)

    def cut(self, length: int) -> None:
        """Remove the checkpoints of more than `length` tokens."""
        self.items = [c for c in self.items if c.length <= length]

    def shared(self, length: int) -> "Checkpoints":
        """A copy with the checkpoints of at most `length` tokens."""
        return Checkpoints([c for c in self.items if c.length <= length])


def marks(prompt: Sequence[int], controls: Collection[int]) -> list[int]:
    """The lengths of a prompt that are worth a checkpoint.

    Checkpoints are before the last messages (the beginning of the answer is one of them) and
    before earlier messages that are far apart. One is always close to the end. In a long last
    message their distances from its end double: who asks something else about the same text reads
    again at most about as much as is new.
    """
    starts = message_starts(prompt, controls)
    near_the_end = whole(prompt, max(0, len(prompt) - _NEAR_THE_END))
    if not starts or near_the_end - starts[-1] > MAX_REREAD:
        starts.append(near_the_end)
    begin = starts[-2] if len(starts) > 1 else 0
    inside: list[int] = []
    distance = CHECKPOINT_DISTANCE
    while starts[-1] - distance >= begin + CHECKPOINT_DISTANCE:
        inside.append(whole(prompt, starts[-1] - distance))
        distance *= 2
    chosen = sorted({*starts[-RECENT_MESSAGES:], *inside})
    for start in reversed(starts[:-RECENT_MESSAGES]):
        if chosen[0] - start >= CHECKPOINT_DISTANCE:
            chosen.insert(0, start)
    return [mark for mark in chosen if 0 < mark < len(prompt)]


def message_starts(prompt: Sequence[int], controls: Collection[int]) -> list[int]:
    """Where messages begin: the positions of the prompt's last control token.

    Templates begin each message with it, also the answer, whose beginning ends a prompt.
    """
    opening = next((token for token in reversed(prompt) if token in controls), None)
    if opening is None:
        return []
    return [place for place, token in enumerate(prompt) if token == opening]


class CachedSequence(Struct, eq=False):
    """One sequence; `tokens` mirrors llama.cpp's memory exactly, with placeholders for images.

    The tokens change only through `append`, `cut`, `close` and `begin`. `planned` is the length of
    its last prompt, and `marks` are those that are worth a checkpoint. `restored` counts tokens
    that came from host memory or disk for the current request. `used` is the time of the last use,
    in seconds since the epoch, and `returns` tells when its session asks again. `owner` is that of
    the tokens. `bytes` is the size
    of the state after the last request. A state can forget the last `forgettable` tokens.
    """

    id: int
    tokens: list[int] = field(default_factory=list[int])
    marks: list[int] = field(default_factory=list[int])
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    busy: bool = False
    planned: int = 0
    restored: int = 0
    used: float = 0.0
    returns: Return = field(default_factory=Return)
    owner: Owner = NOBODY
    bytes: int = 0
    forgettable: int = 0
    _packed: "array[int]" = field(default_factory=lambda: packed(()))
    _surplus: int = 0

    @property
    def packed(self) -> "array[int]":
        """The tokens as an array for comparisons; only new tokens are packed."""
        if len(self._packed) < len(self.tokens):
            self._packed.extend(self.tokens[len(self._packed) :])
        return self._packed

    @property
    def position(self) -> int:
        """The position of the next token; lower than their number after images with M-RoPE."""
        return len(self.tokens) - self._surplus

    def position_at(self, length: int) -> int:
        """The position that follows the first `length` tokens."""
        # Without images each token has a position of its own, and nothing needs to be counted.
        return length - surplus(self.tokens[:length]) if self._surplus else length

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens that were decoded, or placeholders only."""
        self.tokens.extend(tokens)
        if tokens and tokens[0] < 0:  # a placeholder
            self._surplus += surplus(tokens)

    def cut(self, keep: int) -> None:
        """Keep the first `keep` tokens and their checkpoints."""
        self.forgettable = 0
        self._surplus = keep - self.position_at(keep)
        del self.tokens[keep:], self._packed[keep:]
        self.checkpoints.cut(keep)

    def close(self, start: int, end: int) -> None:
        """Remove the tokens from `start` to `end`."""
        del self._packed[start:]  # `packed` adds the ones that follow
        del self.tokens[start:end]
        self._surplus = surplus(self.tokens)
        self.checkpoints.cut(start)

    def begin(self, tokens: Sequence[int], checkpoints: Checkpoints) -> None:
        """Replace all tokens."""
        self.forgettable = 0
        self.tokens = list(tokens)
        self._packed = packed(tokens)
        self._surplus = surplus(self.tokens)
        self.checkpoints = checkpoints.shared(len(self.tokens))


class StoredSequence(Struct, eq=False):
    """The whole state of a sequence, with its tokens and checkpoints.

    `used` is the time of the last use, in seconds since the epoch; `returns` that of the next.
    """

    tokens: "array[int]"
    state: bytearray
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    used: float = 0.0
    returns: Return = field(default_factory=Return)
    owner: Owner = NOBODY

    @property
    def packed(self) -> "array[int]":
        """The tokens, as a sequence has them."""
        return self.tokens

    @property
    def bytes(self) -> int:
        """The size of tokens, state and checkpoints."""
        tokens = len(self.tokens) * self.tokens.itemsize
        return len(self.state) + tokens + self.checkpoints.bytes


class Owned(Protocol):
    """Tokens in some tier, and their owner."""

    @property
    def owner(self) -> Owner:
        """Whose they are."""
        ...

    @property
    def packed(self) -> "array[int]":
        """The tokens as an array."""
        ...


class HostCache:
    """At most `capacity` bytes of states; those whose sessions return last leave first.

    An entry that is a prefix of another one is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evictions = 0
        self.entries: list[StoredSequence] = []
        """All entries, least recently used first."""
        self._rate = INITIAL_RATE

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return sum(entry.bytes for entry in self.entries)

    def wants(self, sequence: CachedSequence, size: int, *, evicts: bool = True) -> bool:
        """Whether a sequence with a state of `size` bytes should be stored, and is not yet.

        For it only entries may leave whose sessions return later, and none without `evicts`.
        """
        tokens, now = sequence.packed, time()
        remaining = sequence.returns.remaining(now)
        kept = sum(
            entry.bytes
            for entry in self.entries
            if not covers(sequence, entry)
            and not (evicts and entry.returns.remaining(now) >= remaining)
        )
        size += len(tokens) * tokens.itemsize
        return kept + size <= self.capacity and not self.holds(sequence)

    def holds(self, one: Owned) -> bool:
        """Whether an entry of the same owner begins with all of its tokens."""
        return any(covers(entry, one) for entry in self.entries)

    def put(self, new: StoredSequence) -> list[StoredSequence]:
        """Store an entry; returns the evicted ones, or the entry itself if it is too large."""
        if new.bytes > self.capacity:
            return [new]
        kept = [e for e in self.entries if not covers(new, e)]
        self.entries = [*kept, new]
        evicted: list[StoredSequence] = []
        while self.bytes > self.capacity:
            evicted.append(last_to_return(self.entries))
            self.entries.remove(evicted[-1])
        self.evictions += len(evicted)
        return evicted

    def find(self, query: Query, *, rolls_back: bool) -> tuple[StoredSequence | None, int]:
        """The entry with the longest usable prefix of a prompt, and its length."""
        best, length = None, 0
        for entry in self.entries:
            lengths = entry.checkpoints.lengths
            prompt = query.part_for(entry.tokens, entry.owner)
            usable = usable_prefix(entry.tokens, lengths, prompt, rolls_back=rolls_back)
            if usable > length:
                best, length = entry, usable
        return best, length

    def remove(self, entry: StoredSequence) -> None:
        """Remove an entry, if it is still stored."""
        if entry in self.entries:
            self.entries.remove(entry)

    def touch(self, entry: StoredSequence) -> None:
        """Mark an entry as used: the entries are in the order of their last use."""
        self.entries.remove(entry)
        self.entries.append(entry)

    def seconds(self, size: int) -> float:
        """The expected seconds to restore a state of `size` bytes."""
        return size / self._rate

    def note_restore(self, size: int, seconds: float) -> None:
        """Learn from a restore of `size` bytes."""
        if seconds > 0:  # a coarse clock may not have moved
            self._rate = (self._rate + size / seconds) / 2


def covers(longer: Owned, shorter: Owned) -> bool:
    """Whether `longer` begins with all tokens of `shorter`, and belongs to the same owner."""
    is_same = longer.owner.name == shorter.owner.name
    return is_same and common_prefix(longer.packed, shorter.packed) == len(shorter.packed)
