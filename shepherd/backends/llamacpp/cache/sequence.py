"""One sequence of a context, and the checkpoints along it."""

from array import array
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from shepherd.backends.llamacpp.cache.prefixes import packed

MOST = 16
MOST_BYTES = 256 * 1024 * 1024
"""Of checkpoints that one sequence keeps; the last is kept whatever its size."""

LAST_STARTS = 2
APART = 512
"""Tokens between checkpoints, but for the last messages."""

_NEAR_THE_END = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state behind the first `length` tokens of a sequence."""

    length: int
    state: bytearray


class Checkpoints:
    """A sequence's checkpoints, shortest first; few, and few bytes."""

    def __init__(self) -> None:
        self._items: list[Checkpoint] = []

    def __len__(self) -> int:
        return len(self._items)

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(len(item.state) for item in self._items)

    @property
    def lengths(self) -> list[int]:
        """Where they are, shortest first."""
        return [item.length for item in self._items]

    @property
    def items(self) -> Tokens[Checkpoint]:
        """All of them, shortest first."""
        return self._items

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep one behind all others; the oldest go when there are too many."""
        self.cut(checkpoint.length - 1)
        self._items.append(checkpoint)
        while len(self._items) > MOST or (len(self._items) > 1 and self.bytes > MOST_BYTES):
            del self._items[0]

    def reach(self, length: int) -> Checkpoint | None:
        """The longest one of at most `length` tokens."""
        return next((c for c in reversed(self._items) if c.length <= length), None)

    def at(self, length: int) -> Checkpoint | None:
        """The one of exactly so many tokens."""
        return next((item for item in self._items if item.length == length), None)

    def cut(self, length: int) -> None:
        """Forget those of more than `length` tokens."""
        self._items = [c for c in self._items if c.length <= length]

    def shared(self, length: int) -> "Checkpoints":
        """Those of at most `length` tokens, for a sequence that begins the same."""
        copy = Checkpoints()
        copy._items = [c for c in self._items if c.length <= length]
        return copy


def marks(prompt: Tokens[int], controls: Collection[int], done: int) -> list[int]:
    """Where decoding a prompt should stop for a checkpoint, behind the `done` tokens.

    That is before the last messages, the answer's own beginning included, and before earlier
    ones that are far apart. A message starts at the control token that the prompt ends with.
    """
    starts = message_starts(prompt, controls)
    chosen = starts[-LAST_STARTS:] or [max(0, len(prompt) - _NEAR_THE_END)]
    for start in reversed(starts[:-LAST_STARTS]):
        if chosen[0] - start >= APART:
            chosen.insert(0, start)
    return [mark for mark in chosen if done < mark < len(prompt)]


def message_starts(prompt: Tokens[int], controls: Collection[int]) -> list[int]:
    """The places of the prompt's last control token."""
    opening = next((token for token in reversed(prompt) if token in controls), None)
    if opening is None:
        return []
    return [place for place, token in enumerate(prompt) if token == opening]


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` is exactly what is in memory; it changes by `append`, `cut`, `close` and `begin`.

    `marks` are the lengths at which a checkpoint is to be taken, `restored` is how many tokens
    came from host memory or disk for the present request. `last_used` counts uses of the whole
    pool, `used` is in seconds since the epoch. `bytes` is the state's size after the last request.
    """

    id: int
    tokens: list[int] = field(default_factory=list[int])
    marks: list[int] = field(default_factory=list[int])
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    busy: bool = False
    restored: int = 0
    last_used: int = 0
    used: float = 0.0
    bytes: int = 0
    _packed: "array[int]" = field(default_factory=lambda: packed(()))

    @property
    def packed(self) -> "array[int]":
        """The tokens for comparing; only what is new is packed."""
        if len(self._packed) < len(self.tokens):
            self._packed.extend(self.tokens[len(self._packed) :])
        return self._packed

    def append(self, tokens: Tokens[int]) -> None:
        """More was decoded."""
        self.tokens.extend(tokens)

    def cut(self, keep: int) -> None:
        """Only the first `keep` tokens are left, and their checkpoints."""
        del self.tokens[keep:], self._packed[keep:]
        self.checkpoints.cut(keep)

    def close(self, start: int, end: int) -> None:
        """What was behind `end` follows what was before `start`."""
        del self._packed[start:]
        del self.tokens[start:end]
        self.checkpoints.cut(start)

    def begin(self, tokens: Tokens[int], checkpoints: Checkpoints) -> None:
        """Other tokens are there now."""
        self.tokens = list(tokens)
        self._packed = packed(tokens)
        self.checkpoints = checkpoints.shared(len(self.tokens))
