"""The place of images among tokens: runs of negative numbers that follow from their contents.

Equal images have equal runs, so prefixes are compared, stored and restored as with tokens. A run
says itself where it ends and how many positions it takes, also after a restart.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import shake_256

_END = 1 << 30
_ADVANCES = 1 << 29
_HASH = _ADVANCES - 1
"""A placeholder is `~bits`: is it the last, does the next have a higher position, and a hash."""


def placeholders(key: bytes, tokens: int, positions: int) -> tuple[int, ...]:
    """The run of an image that has this many tokens and takes this many positions.

    `key` stands for the contents of the image, and for all that changes its embeddings. M-RoPE
    takes fewer positions than tokens.
    """
    if not 0 < positions <= tokens:
        raise ValueError(f"an image of {tokens} tokens can't take {positions} positions")
    words = struct.unpack(f"<{tokens}I", shake_256(key).digest(4 * tokens))
    bits = [word & _HASH | (_ADVANCES if i < positions else 0) for i, word in enumerate(words)]
    bits[-1] |= _END
    return tuple(~entry for entry in bits)


def whole(tokens: Sequence[int], length: int) -> int:
    """The longest prefix of at most `length` tokens that does not end inside a run."""
    while length > 0 and tokens[length - 1] < 0 and not ~tokens[length - 1] & _END:
        length -= 1
    return length


def surplus(tokens: Sequence[int]) -> int:
    """How many more tokens these are than positions."""
    return sum(token < 0 and not ~token & _ADVANCES for token in tokens)


def runs(tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The start and end of each run."""
    start = -1
    for place, token in enumerate(tokens):
        if token >= 0:
            continue
        start = place if start < 0 else start
        if ~token & _END:
            yield start, place + 1
            start = -1
