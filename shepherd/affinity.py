"""Sends a conversation to the replica that has its beginning in its cache; no I/O."""

import json
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

BLOCK_CHARACTERS = 1024
"""The maximum of characters that one hash stands for; a part of a prompt begins a new block."""

_HASH_BYTES = 8

_OPENING = ("model", "tools", "functions", "system", "instructions", "systemInstruction")
_OPENING_SNAKE = "system_instruction"
_MESSAGES = ("messages", "input", "contents", "prompt")
_SYSTEM_ROLES = ("system", "developer")
_PREVIOUS = "previous_response_id"
_MOVING = "cache_control"
"""A mark of Anthropic's API that clients move to the newest message; the text stays the same."""


class Prefix(Struct, frozen=True):
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


def body_prefix(body: object) -> Prefix:
    """The prefix of a request's body, parsed from JSON; an empty one if it holds no prompt.

    Chat completions, completions, Responses, Messages, Gemini's and Ollama's requests are known.
    A body that continues a stored response begins with the last block of `with_response`.
    Parameters of sampling don't count. Never raises for the content of a body.
    """
    if not isinstance(body, dict):
        return Prefix()
    values = cast(Mapping[str, object], body)
    messages = [message for name in _MESSAGES for message in _items(values.get(name))]
    previous = values.get(_PREVIOUS)
    if isinstance(previous, str) and previous and "messages" not in values:
        return _chain([], [_response_text(previous)], messages)
    shared = 0
    while shared < len(messages) and _role(messages[shared]) in _SYSTEM_ROLES:
        shared += 1
    if not messages:
        return Prefix()
    fields = [values[name] for name in (*_OPENING, _OPENING_SNAKE) if values.get(name)]
    return _chain([*fields, *messages[:shared]], [], messages[shared:])


def with_response(prefix: Prefix, id: str) -> Prefix:
    """The prefix with one more block, which stands for the whole conversation up to a response.

    A request that continues the response holds only its id and what is new.
    """
    block = prefix_of([], [_response_text(id)]).hashes[-1]
    end = prefix.ends[-1] if prefix.ends else 0
    return replace(prefix, hashes=(*prefix.hashes, block), ends=(*prefix.ends, end))


def _response_text(id: str) -> str:
    """Unlike any canonical text, which begins as JSON does."""
    return f"response {id}"


def _chain(opening: list[object], texts: list[str], messages: list[object]) -> Prefix:
    try:
        beginning = [canonical(value) for value in opening]
        return prefix_of(beginning, [*texts, *map(canonical, messages)])
    except RecursionError:  # nested as no client nests
        return Prefix()


def canonical(value: object) -> str:
    """The JSON text of a value: the same for the same content, whatever the order of its keys."""
    text = _dump(value)
    return _dump(_without_marks(value)) if _MOVING in text else text


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _items(value: object) -> Iterator[object]:
    if isinstance(value, list):
        yield from cast(list[object], value)
    elif value:
        yield value


def _role(message: object) -> object:
    return cast(Mapping[str, object], message).get("role") if isinstance(message, dict) else None


def _without_marks(value: object) -> object:
    if isinstance(value, dict):
        pairs = cast(Mapping[str, object], value).items()
        return {name: _without_marks(part) for name, part in pairs if name != _MOVING}
    if isinstance(value, list):
        return [_without_marks(part) for part in cast(list[object], value)]
    return value


R = TypeVar("R", bound=Hashable)

ENTRY_BYTES = 256
"""The memory of one block of one replica: 150 to 240 were measured with 1 to 1,000 replicas."""

DEFAULT_BYTES = 64 * 2**20
REPLICA_BYTES = 512 * 2**10
"""The minimum for a replica: blocks for half a million tokens, about as many as a cache holds."""

_MASK = 2**64 - 1
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


class PrefixIndex(Generic[R]):
    """Finds the replicas that have read the longest beginning of a prompt.

    All replicas share `max_bytes` equally, but each has at least `replica_bytes`. A replica that
    needs more forgets the blocks that were used least recently, always from the end of a prompt:
    the beginnings of a known block are known.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES, replica_bytes: int = 0) -> None:
        self._max_blocks = max_bytes // ENTRY_BYTES
        self._min_share = max(1, replica_bytes // ENTRY_BYTES)
        # Each replica has one bit of a number, so the holders of a block are one number too, and a
        # search costs the same however many replicas there are.
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
        mask = -1  # all replicas
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
        """The blocks of a replica; a new one gets a free bit, and the others a smaller share."""
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
        """The replicas of the bits that are set."""
        while bits:
            lowest = bits & -bits
            yield self._replicas[lowest]
            bits ^= lowest


class Balance(Struct, frozen=True):
    """How much busier than the least busy replica the one with the cache may be.

    At most `factor` times its load, plus `slack`. Loads are in requests, or in any other unit.
    """

    factor: float = 1.5
    slack: float = 2.0

    def limit(self, least: float) -> float:
        """The highest load at which the cache still decides."""
        return self.factor * least + self.slack


class Choice(Struct, Generic[R], frozen=True):
    """The chosen replica, and how much of the prompt it has read: in blocks and in characters."""

    replica: R
    blocks: int = 0
    characters: int = 0


class AffinityRouter(Generic[R]):
    """Sends a prompt to the replica that knows the longest beginning of it.

    If that replica is busier than `balance` allows, the next longest beginning counts. If no
    replica is left, the least busy one is chosen. A new conversation, of which only the opening is
    known, goes to another replica if that one holds far less. Of equal replicas, `seed` and the
    conversation decide: routers with the same seed choose alike. A replica is any hashable value.
    """

    def __init__(
        self,
        balance: Balance | None = None,
        *,
        max_bytes: int = DEFAULT_BYTES,
        replica_bytes: int = REPLICA_BYTES,
        seed: int = 0,
    ) -> None:
        """`max_bytes` limits the memory for the prompts of all replicas together.

        Each replica may have `replica_bytes` in any case, so many replicas take more memory.
        """
        self.balance = balance or Balance()
        self.index: PrefixIndex[R] = PrefixIndex(max_bytes, replica_bytes)
        self._seed = seed
        self._salts: dict[R, int] = {}

    def choose(self, prefix: Prefix, loads: Mapping[R, float]) -> Choice[R]:
        """The replica for a prompt; `loads` has those that can take it, each with its load.

        Records nothing, because the request may go elsewhere. Raises ValueError without replicas.
        """
        limit = self.balance.limit(min(loads.values()))
        excluded: set[R] = set()
        while True:
            blocks, holders = self.index.longest(prefix, excluded)
            fits = [r for r in holders if loads.get(r, limit + 1) <= limit]
            if blocks <= prefix.opening:
                fits = self._not_crowded(fits, loads, prefix.opening)
            if fits:
                return self._choice(self._least_busy(prefix, fits, loads), blocks, prefix)
            if not holders:
                break
            excluded.update(holders)
        equal = _with_least_load(loads, loads)
        equal = self._not_crowded(equal, loads, prefix.opening) or equal
        replica = self._least_busy(prefix, equal, loads)
        return self._choice(replica, self.index.common(prefix, replica), prefix)

    def record(self, prefix: Prefix, replica: R) -> None:
        """Note that the prompt was sent to this replica."""
        self.index.record(prefix, replica)

    def forget(self, replica: R) -> None:
        """Drop what is recorded of a replica that died, or that lost its cache."""
        self.index.forget(replica)
        self._salts.pop(replica, None)

    def _choice(self, replica: R, blocks: int, prefix: Prefix) -> Choice[R]:
        return Choice(replica, blocks, prefix.ends[blocks - 1] if blocks else 0)

    def _not_crowded(
        self, replicas: Collection[R], loads: Mapping[R, float], opening: int
    ) -> list[R]:
        """The replicas that don't hold far more blocks than the others, beyond one opening.

        Otherwise all conversations with one system message would gather in one cache. It costs
        another replica a single opening to join in.
        """
        limit = self.balance.factor * min(map(self.index.blocks, loads)) + opening
        return [replica for replica in replicas if self.index.blocks(replica) <= limit]

    def _least_busy(self, prefix: Prefix, replicas: Collection[R], loads: Mapping[R, float]) -> R:
        """Of equally busy ones that with the highest random weight (rendezvous hashing)."""
        equal = _with_least_load(replicas, loads)
        if len(equal) == 1:
            return equal[0]
        key = prefix.key
        return max(equal, key=lambda r: mixed(key ^ (self._salts.get(r) or self.salt(r))))

    def salt(self, replica: R) -> int:
        """The replica's part of the weight: 64 bits."""
        text = f"{self._seed} {replica!r}".encode("utf-8", "surrogatepass")
        salt = self._salts[replica] = int.from_bytes(blake2b(text, digest_size=8).digest())
        return salt


def _with_least_load(replicas: Collection[R], loads: Mapping[R, float]) -> list[R]:
    least = min(map(loads.__getitem__, replicas))
    return [replica for replica in replicas if loads[replica] == least]


def mixed(number: int) -> int:
    """A number of 64 bits that depends on all bits of `number`."""
    product = number * _MULTIPLIER & _MASK
    return (product ^ product >> 32) * _MULTIPLIER & _MASK
