"""States kept along a sequence whose memory can't forget a part, to go back to."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
    def items(self) -> Sequence[Checkpoint]:
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


def marks(prompt: Sequence[int], controls: Collection[int], done: int) -> list[int]:
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


def message_starts(prompt: Sequence[int], controls: Collection[int]) -> list[int]:
    """The places of the prompt's last control token."""
    opening = next((token for token in reversed(prompt) if token in controls), None)
    if opening is None:
        return []
    return [place for place, token in enumerate(prompt) if token == opening]
