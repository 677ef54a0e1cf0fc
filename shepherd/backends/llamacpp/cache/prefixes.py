"""How much of a prompt is known already.

The longest prefix that a radix tree over some token lists would find is the longest common prefix
with any one of them. Packed into arrays they are compared at some 4 tokens a nanosecond, so they
are simply all looked at: eight sequences of 32,768 tokens take a quarter of a millisecond.
"""

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

_BLOCKS = (4096, 64, 1)

LEAST_HEAD = 8
LEAST_KEPT = 32
"""Tokens before and behind a gap; less is another conversation rather than an eviction."""

_TRIES = 16
_WIDTH = array("i").itemsize


def packed(tokens: Sequence[int]) -> "array[int]":
    """The tokens as numbers side by side, which compare much faster than a list's objects."""
    return array("i", tokens)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens are the same from the start; fast if both are packed or both are lists."""
    end = min(len(a), len(b))
    at = 0
    for block in _BLOCKS:
        while at < end and a[at : at + block] == b[at : at + block]:
            at += block
    while at < end and a[at] == b[at]:  # what is packed never equals a list
        at += 1
    return min(at, end)


def reach(lengths: Sequence[int], length: int) -> int:
    """The longest of the checkpoints' lengths, shortest first, that is at most this; or 0."""
    return next((known for known in reversed(lengths) if known <= length), 0)


def usable_prefix(
    tokens: Sequence[int], checkpoints: Sequence[int], prompt: Sequence[int], *, rolls_back: bool
) -> int:
    """How many of `tokens`, which are in memory, the prompt can start from.

    At least its last token is left to be decoded. Without `rolls_back` only the lengths at which
    there are checkpoints, or all tokens, can be started from.
    """
    common = min(common_prefix(tokens, prompt), len(prompt) - 1)
    if rolls_back or common == len(tokens):
        return common
    return reach(checkpoints, common)


@dataclass(frozen=True, slots=True)
class Gap:
    """The tokens from `start` to `end` are left out; `kept` behind them are in the prompt."""

    start: int
    end: int
    kept: int

    @property
    def usable(self) -> int:
        """What is in memory of the prompt once the gap is closed."""
        return self.start + self.kept


def find_gap(tokens: Sequence[int], prompt: Sequence[int], controls: Collection[int]) -> Gap | None:
    """The one gap that makes the prompt's beginning of these tokens, if it is of whole messages.

    A gap inside a message would be an edit, which the model has to read again.
    """
    start = common_prefix(tokens, prompt)
    rest = prompt[start:-1]
    if start < LEAST_HEAD or len(rest) < LEAST_KEPT:
        return None
    best: Gap | None = None
    for end in islice(_places(tokens, rest[:LEAST_KEPT], start + 1), _TRIES):
        kept = common_prefix(tokens[end:], rest)
        better = best is None or kept > best.kept
        if better and _is_whole(tokens, start, end, kept, controls):
            best = Gap(start, end, kept)
    return best


def _places(tokens: Sequence[int], needle: Sequence[int], first: int) -> Iterator[int]:
    """Where the needle is among the tokens, from `first` on."""
    data, wanted = array("i", tokens).tobytes(), array("i", needle).tobytes()
    at = data.find(wanted, first * _WIDTH)
    while at >= 0:
        if at % _WIDTH == 0:
            yield at // _WIDTH
        at = data.find(wanted, at + 1)


def _is_whole(
    tokens: Sequence[int], start: int, end: int, kept: int, controls: Collection[int]
) -> bool:
    """Whether both ends of the gap are where messages start, and messages follow.

    Neighbours that begin alike move the gap: it is looked for as far back as it could be.
    """
    while start > LEAST_HEAD and tokens[start - 1] == tokens[end - 1]:
        start, end, kept = start - 1, end - 1, kept + 1
        if tokens[start] in controls:
            return sum(token in controls for token in tokens[end : end + kept]) > 1
    return False
