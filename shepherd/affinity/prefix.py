"""A prompt as a chain of hashes, so that beginnings are compared without a tokenizer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

BLOCK_CHARACTERS = 1024
"""The maximum of characters that one hash stands for; a part of a prompt begins a new block."""

_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prompt in blocks: each hash stands for the whole prompt up to the end of its block.

    `ends` runs parallel to `hashes` and counts the characters up to there. The first `opening`
    blocks are the system message and the tools, which many conversations share. `key` stands for
    them and the first message, so it stays the same when messages are added.
    """

    hashes: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    opening: int = 0
    key: int = 0


def prefix_of(
    opening: Iterable[str], messages: Iterable[str], block_characters: int = BLOCK_CHARACTERS
) -> Prefix:
    """The chain of a prompt that consists of these texts, in this order.

    A text that is the same must be written in the same way in each request. The last block of a
    text may be shorter, so that a chain stays a beginning of the chain with more messages.
    """
    chain = _Chain(block_characters)
    chain.extend(opening)
    shared = len(chain.hashes)
    rest = iter(messages)
    chain.extend(islice(rest, 1))
    key = chain.hashes[-1] if chain.hashes else 0
    chain.extend(rest)
    return Prefix(tuple(chain.hashes), tuple(chain.ends), shared, key)


class _Chain:
    """Hashes under construction."""

    def __init__(self, block_characters: int) -> None:
        self.hashes: list[int] = []
        self.ends: list[int] = []
        self._size = block_characters
        self._digest = b""
        self._end = 0

    def extend(self, texts: Iterable[str]) -> None:
        """Append the blocks of texts; an empty text has one, too."""
        for text in texts:
            for block in self._blocks(text):
                self._append(block)

    def _blocks(self, text: str) -> Iterator[str]:
        return (text[i : i + self._size] for i in range(0, max(len(text), 1), self._size))

    def _append(self, block: str) -> None:
        data = block.encode("utf-8", "surrogatepass")
        self._digest = blake2b(self._digest + data, digest_size=_HASH_BYTES).digest()
        self._end += len(block)
        self.hashes.append(int.from_bytes(self._digest))
        self.ends.append(self._end)
