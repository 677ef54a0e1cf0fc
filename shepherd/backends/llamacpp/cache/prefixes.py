"""The search for the prefix of a prompt that is in memory, and for gaps that evictions leave.

The longest prefix in a radix tree is the longest common prefix with any one of its token lists.
Arrays of tokens compare at about 4 tokens per nanosecond, so all of them are compared: eight
sequences of 32,768 tokens take a quarter of a millisecond.
"""

import struct
from array import array
from collections.abc import Collection, Iterator, Sequence
from hashlib import shake_256
from itertools import islice

from msgspec import Struct

_END = 1 << 30
_ADVANCES = 1 << 29
_HASH = _ADVANCES - 1
"""A placeholder is `~bits`: is it the last, does the next have a higher position, and a hash."""

_BLOCKS = (4096, 64, 1)
"""The sizes of the slices that are compared, one after the other: slices compare in C."""

MIN_PREFIX = 8
MIN_KEPT = 32
"""The minimum of tokens before and after a gap; fewer mean another conversation."""

_TRIES = 16
"""Places at which the tokens behind a gap may begin; a text that repeats itself has many."""
_WIDTH = array("i").itemsize


def placeholders(key: bytes, tokens: int, positions: int) -> tuple[int, ...]:
    """The run of negative numbers that stands for an image among tokens.

    Equal images have equal runs, so prefixes are compared, stored and restored as with tokens. A
    run says itself where it ends and how many positions it takes, also after a restart. `key`
    stands for the contents of the image, and for all that changes its embeddings. M-RoPE takes
    fewer positions than tokens.
    """
    if not 0 < positions <= tokens:
        raise ValueError(f"an image of {tokens} tokens can't take {positions} positions")
    words = struct.unpack(f"<{tokens}I", shake_256(key).digest(4 * tokens))
    bits = [word & _HASH | (_ADVANCES if i < positions else 0) for i, word in enumerate(words)]
    bits[-1] |= _END
    return tuple(~entry for entry in bits)


def whole(tokens: Sequence[int], length: int) -> int:
    """The length of the longest prefix of at most `length` tokens that does not end in a run."""
    # Back to text, or to the placeholder that ends its run.
    while length > 0 and tokens[length - 1] < 0 and not ~tokens[length - 1] & _END:
        length -= 1
    return length


def surplus(tokens: Sequence[int]) -> int:
    """How many more tokens these are than positions."""
    return sum(token < 0 and not ~token & _ADVANCES for token in tokens)


def runs(tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The start and end of each run of placeholders, which stands for an image."""
    start = -1
    for place, token in enumerate(tokens):
        if token >= 0:  # text
            continue
        start = place if start < 0 else start  # -1 is outside of a run
        if ~token & _END:
            yield start, place + 1
            start = -1


def packed(tokens: Sequence[int]) -> "array[int]":
    """The tokens as an array, which compares much faster than a list."""
    return array("i", tokens)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common prefix; fast if both are arrays or both are lists."""
    end = min(len(a), len(b))
    at = 0
    for block in _BLOCKS:  # smaller ones where the larger ones differ
        while at < end and a[at : at + block] == b[at : at + block]:
            at += block
    while at < end and a[at] == b[at]:  # an array never equals a list
        at += 1
    return min(at, end)


def reach(lengths: Sequence[int], length: int) -> int:
    """The longest of the checkpoints' `lengths` that is at most `length`, or 0."""
    return next((known for known in reversed(lengths) if known <= length), 0)


class Owner(Struct, frozen=True):
    """Whose tokens some are. The first `shared` ones are a system message and tools.

    Who has sent exactly these as well may use them; nothing else is used for another owner. So
    nobody learns from the time of an answer what others wrote.
    """

    name: str = ""
    shared: int = 0


NOBODY = Owner()
"""The owner of what comes without a key."""


class Query(Struct, frozen=True):
    """A packed prompt, and whose it is."""

    tokens: "array[int]"
    owner: Owner = NOBODY

    def part_for(self, tokens: Sequence[int], owner: Owner) -> "array[int]":
        """The part of the prompt that may reuse an owner's tokens, and one token behind it."""
        if owner.name == self.owner.name:
            return self.tokens
        shared = self.owner.shared
        is_whole = 0 < shared == owner.shared and common_prefix(tokens, self.tokens) >= shared
        return self.tokens[: shared + 1 if is_whole else 1]


def usable_prefix(
    tokens: Sequence[int], checkpoints: Sequence[int], prompt: Sequence[int], *, rolls_back: bool
) -> int:
    """How many of `tokens`, which are in memory, the prompt can reuse.

    The last token of the prompt is always decoded, and images are reused as a whole. Without
    `rolls_back` a prompt can reuse only all tokens, or those of a checkpoint.
    """
    common = whole(prompt, min(common_prefix(tokens, prompt), len(prompt) - 1))
    if rolls_back or common == len(tokens):
        return common
    return reach(checkpoints, common)


class Gap(Struct, frozen=True):
    """The prompt lacks the tokens from `start` to `end`, and has `kept` tokens after them."""

    start: int
    end: int
    kept: int

    @property
    def usable(self) -> int:
        """The tokens of the prompt that are in memory once the gap is closed."""
        return self.start + self.kept


def find_gap(tokens: Sequence[int], prompt: Sequence[int], controls: Collection[int]) -> Gap | None:
    """The gap of whole messages that turns these tokens into the prompt's beginning, or None.

    A gap inside a message is an edit, which the model has to read again.
    """
    start = common_prefix(tokens, prompt)
    behind = prompt[start:-1]  # the last token of a prompt is always decoded
    if start < MIN_PREFIX or len(behind) < MIN_KEPT:
        return None
    best: Gap | None = None
    for end in islice(_places(tokens, behind[:MIN_KEPT], start + 1), _TRIES):
        kept = common_prefix(tokens[end:], behind)
        is_better = best is None or kept > best.kept
        if is_better and _is_whole(tokens, start, end, kept, controls):
            best = Gap(start, end, kept)
    return best


def _places(tokens: Sequence[int], needle: Sequence[int], first: int) -> Iterator[int]:
    """The positions of `needle` among the tokens, from `first` on."""
    data, pattern = array("i", tokens).tobytes(), array("i", needle).tobytes()
    at = data.find(pattern, first * _WIDTH)
    while at >= 0:
        if at % _WIDTH == 0:  # else the bytes agree across two tokens
            yield at // _WIDTH
        at = data.find(pattern, at + 1)


def _is_whole(
    tokens: Sequence[int], start: int, end: int, kept: int, controls: Collection[int]
) -> bool:
    """Whether both ends of the gap are starts of messages, and more messages follow.

    Equal tokens at both ends allow the gap to move, so earlier positions are tried too.
    """
    while start > MIN_PREFIX and tokens[start - 1] == tokens[end - 1]:
        start, end, kept = start - 1, end - 1, kept + 1
        if tokens[start] in controls:  # here a message starts
            return sum(token in controls for token in tokens[end : end + kept]) > 1
    return False
