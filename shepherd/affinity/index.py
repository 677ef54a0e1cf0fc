"""The prompts that each replica has read, within a limit of memory."""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator
from typing import Generic, TypeVar

from shepherd.affinity.prefix import Prefix

R = TypeVar("R", bound=Hashable)

ENTRY_BYTES = 256
"""The memory of one block of one replica: 150 to 240 were measured with 1 to 1,000 replicas."""

DEFAULT_BYTES = 64 * 2**20
REPLICA_BYTES = 512 * 2**10
"""The minimum for a replica: blocks for half a million tokens, about as many as a cache holds."""


class PrefixIndex(Generic[R]):
    """Finds the replicas that have read the longest beginning of a prompt.

    All replicas share `max_bytes` equally, but each has at least `replica_bytes`. A replica that
    needs more forgets the blocks that were used least recently, always from the end of a prompt:
    the beginnings of a known block are known.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES, replica_bytes: int = 0) -> None:
        self._max_blocks = max_bytes // ENTRY_BYTES
        self._min_share = max(1, replica_bytes // ENTRY_BYTES)
        self._bits: dict[R, int] = {}
        self._replicas: dict[int, R] = {}
        self._blocks: dict[R, OrderedDict[int, None]] = {}
        self._holders: dict[int, int] = {}
        """The bits of the replicas that have read each block."""

    def __len__(self) -> int:
        return sum(len(blocks) for blocks in self._blocks.values())

    @property
    def bytes(self) -> int:
        """The memory in use, estimated."""
        return len(self) * ENTRY_BYTES

    def blocks(self, replica: R) -> int:
        """The number of blocks that are recorded for a replica."""
        return len(self._blocks.get(replica, ()))

    def record(self, prefix: Prefix, replica: R) -> None:
        """Note that a replica reads this prompt."""
        blocks = self._join(replica)
        bit = self._bits[replica]
        share = self._share()
        for block in reversed(prefix.hashes[:share]):  # the beginning becomes the newest
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
                self._holders[block] = self._holders.get(block, 0) | bit
        self._trim(replica, share)

    def longest(self, prefix: Prefix, excluded: Collection[R] = ()) -> tuple[int, list[R]]:
        """The number of blocks of the longest known beginning, and the replicas that have it.

        (0, []) if no replica besides the `excluded` ones has the first block.
        """
        mask = -1
        for replica in excluded:
            mask &= ~self._bits.get(replica, 0)
        length = self._longest(prefix, mask)
        if not length:
            return 0, []
        return length, list(self._of_bits(self._holders[prefix.hashes[length - 1]] & mask))

    def common(self, prefix: Prefix, replica: R) -> int:
        """The number of the prompt's first blocks that this replica has read."""
        return self._longest(prefix, self._bits.get(replica, 0))

    def forget(self, replica: R) -> None:
        """Drop all of a replica: it has died, or its cache is empty."""
        for block in self._blocks.pop(replica, ()):
            self._drop(block, replica)
        bit = self._bits.pop(replica, 0)
        self._replicas.pop(bit, None)

    def _longest(self, prefix: Prefix, mask: int) -> int:
        low, high = 0, len(prefix.hashes)
        while low < high:  # a replica that knows a block knows those before it
            middle = (low + high + 1) // 2
            if self._holders.get(prefix.hashes[middle - 1], 0) & mask:
                low = middle
            else:
                high = middle - 1
        return low

    def _join(self, replica: R) -> OrderedDict[int, None]:
        blocks = self._blocks.get(replica)
        if blocks is not None:
            return blocks
        number = 0
        while 1 << number in self._replicas:
            number += 1
        self._bits[replica] = 1 << number
        self._replicas[1 << number] = replica
        blocks = self._blocks[replica] = OrderedDict()
        for other in self._blocks:
            self._trim(other, self._share())
        return blocks

    def _share(self) -> int:
        return max(self._min_share, self._max_blocks // len(self._blocks))

    def _trim(self, replica: R, share: int) -> None:
        blocks = self._blocks[replica]
        while len(blocks) > share:
            self._drop(blocks.popitem(last=False)[0], replica)

    def _drop(self, block: int, replica: R) -> None:
        rest = self._holders[block] & ~self._bits[replica]
        if rest:
            self._holders[block] = rest
        else:
            del self._holders[block]

    def _of_bits(self, bits: int) -> Iterator[R]:
        while bits:
            lowest = bits & -bits
            yield self._replicas[lowest]
            bits ^= lowest
