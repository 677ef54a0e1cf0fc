"""Sends a conversation to the replica that has its beginning in its cache; no I/O."""

import json
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Generic, TypeVar, cast

from msgspec import Struct, field, structs

BLOCK_CHARACTERS = 1024
"""The maximum of characters that one hash stands for; a part of a prompt begins a new block."""

_HASH_BYTES = 8

_OPENING = ("model", "tools", "functions", "system", "instructions", "systemInstruction")
_OPENING_SNAKE = "system_instruction"
_MESSAGES = ("messages", "input", "contents", "prompt")
_SYSTEM_ROLES = ("system", "developer")
_PREVIOUS = "previous_response_id"
_CACHE_MARK = "cache_control"
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
    opening_blocks = len(chain.hashes)
    remaining = iter(messages)
    chain.extend(islice(remaining, 1))  # the first message, up to which the key stands
    key = chain.hashes[-1] if chain.hashes else 0
    chain.extend(remaining)
    return Prefix(tuple(chain.hashes), tuple(chain.ends), opening_blocks, key)


class _Chain(Struct):
    """Hashes under construction."""

    block_characters: int
    hashes: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    _digest: bytes = b""
    _characters: int = 0

    def extend(self, texts: Iterable[str]) -> None:
        """Append the blocks of texts; an empty text has one, too."""
        for text in texts:
            for piece in self._pieces(text):
                self._append(piece)

    def _pieces(self, text: str) -> Iterator[str]:
        """The text in pieces of the size of a block."""
        for start in range(0, max(len(text), 1), self.block_characters):
            yield text[start : start + self.block_characters]

    def _append(self, piece: str) -> None:
        """Add a block, whose hash goes on from the one before: so it stands for all up to it."""
        data = piece.encode("utf-8", "surrogatepass")
        self._digest = blake2b(self._digest + data, digest_size=_HASH_BYTES).digest()
        self._characters += len(piece)
        self.hashes.append(int.from_bytes(self._digest))
        self.ends.append(self._characters)


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
    # only the Responses API continues responses, and its field of messages is `input`
    if isinstance(previous, str) and previous and "messages" not in values:
        return _chain([], [_response_text(previous)], messages)
    if not messages:
        return Prefix()
    fields = [values[name] for name in (*_OPENING, _OPENING_SNAKE) if values.get(name)]
    of_system = list(takewhile(lambda message: _role(message) in _SYSTEM_ROLES, messages))
    return _chain([*fields, *of_system], [], messages[len(of_system) :])


def with_response(prefix: Prefix, id: str) -> Prefix:
    """The prefix with one more block, which stands for the whole conversation up to a response.

    A request that continues the response holds only its id and what is new.
    """
    block = prefix_of([], [_response_text(id)]).hashes[-1]
    end = prefix.ends[-1] if prefix.ends else 0
    return structs.replace(prefix, hashes=(*prefix.hashes, block), ends=(*prefix.ends, end))


def _response_text(id: str) -> str:
    """Unlike any canonical text, which begins as JSON does."""
    return f"response {id}"


def _chain(opening: list[object], texts: list[str], messages: list[object]) -> Prefix:
    """The prefix of values of JSON; `texts` stand between the opening and the messages."""
    try:
        beginning = [canonical(value) for value in opening]
        return prefix_of(beginning, [*texts, *map(canonical, messages)])
    except RecursionError:  # nested as no client nests
        return Prefix()


def canonical(value: object) -> str:
    """The JSON text of a value: the same for the same content, whatever the order of its keys.

    Marks for Anthropic's cache are left out, because clients move them to the newest message.
    """
    text = _dump(value)
    return _dump(_without_marks(value)) if _CACHE_MARK in text else text


def _dump(value: object) -> str:
    """Compact JSON, in which the keys of an object are sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _items(value: object) -> Iterator[object]:
    """The items of a list, the one item if it is none, or nothing."""
    if isinstance(value, list):
        yield from cast(list[object], value)
    elif value:
        yield value


def _role(message: object) -> object:
    """The role of a message; None for one without, such as a text."""
    return cast(Mapping[str, object], message).get("role") if isinstance(message, dict) else None


def _without_marks(value: object) -> object:
    """A copy of a value of JSON without marks for Anthropic's cache, however deep they are."""
    if isinstance(value, dict):
        pairs = cast(Mapping[str, object], value).items()
        return {name: _without_marks(part) for name, part in pairs if name != _CACHE_MARK}
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
        # each replica has one bit of a number, so the holders of a block are one number too, and a
        # search costs the same however many replicas there are
        self._bit_of: dict[R, int] = {}
        self._replica_of_bit: dict[int, R] = {}
        self._blocks_of: dict[R, OrderedDict[int, None]] = {}
        """The blocks of each replica, the least recently used first."""
        self._holder_bits: dict[int, int] = {}
        """The bits of the replicas that have read each block."""

    def __len__(self) -> int:
        return sum(len(blocks) for blocks in self._blocks_of.values())

    @property
    def bytes(self) -> int:
        """The memory in use, estimated."""
        return len(self) * ENTRY_BYTES

    def blocks(self, replica: R) -> int:
        """The number of blocks that are recorded for a replica."""
        return len(self._blocks_of.get(replica, ()))

    def record(self, prefix: Prefix, replica: R) -> None:
        """Note that a replica reads this prompt."""
        blocks = self._join(replica)
        bit = self._bit_of[replica]
        share = self._share()
        for block in reversed(prefix.hashes[:share]):  # the beginning becomes the newest
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
                self._holder_bits[block] = self._holder_bits.get(block, 0) | bit
        self._trim(replica, share)

    def longest(self, prefix: Prefix, excluded: Collection[R] = ()) -> tuple[int, list[R]]:
        """The number of blocks of the longest known beginning, and the replicas that have it.

        (0, []) if no replica besides the `excluded` ones has the first block.
        """
        allowed_bits = -1  # those of all replicas
        for replica in excluded:
            allowed_bits &= ~self._bit_of.get(replica, 0)
        length = self._longest(prefix, allowed_bits)
        if not length:
            return 0, []
        last_block = prefix.hashes[length - 1]
        return length, list(self._of_bits(self._holder_bits[last_block] & allowed_bits))

    def common(self, prefix: Prefix, replica: R) -> int:
        """The number of the prompt's first blocks that this replica has read."""
        return self._longest(prefix, self._bit_of.get(replica, 0))

    def forget(self, replica: R) -> None:
        """Drop all of a replica: it has died, or its cache is empty."""
        for block in self._blocks_of.pop(replica, ()):
            self._drop(block, replica)
        bit = self._bit_of.pop(replica, 0)
        self._replica_of_bit.pop(bit, None)

    def _longest(self, prefix: Prefix, allowed_bits: int) -> int:
        """The number of blocks that one of these replicas has read, by halving the interval.

        That is possible because a replica that knows a block knows those before it.
        """
        low, high = 0, len(prefix.hashes)
        while low < high:
            middle = (low + high + 1) // 2
            if self._holder_bits.get(prefix.hashes[middle - 1], 0) & allowed_bits:
                low = middle
            else:
                high = middle - 1
        return low

    def _join(self, replica: R) -> OrderedDict[int, None]:
        """The blocks of a replica; a new one gets a free bit, and the others a smaller share."""
        blocks = self._blocks_of.get(replica)
        if blocks is not None:
            return blocks
        bit = 1
        while bit in self._replica_of_bit:
            bit <<= 1
        self._bit_of[replica] = bit
        self._replica_of_bit[bit] = replica
        blocks = self._blocks_of[replica] = OrderedDict()
        for other in self._blocks_of:  # one more replica shares the memory
            self._trim(other, self._share())
        return blocks

    def _share(self) -> int:
        """The maximum of blocks of each replica."""
        return max(self._min_share, self._max_blocks // len(self._blocks_of))

    def _trim(self, replica: R, share: int) -> None:
        """Forget the least recently used blocks beyond the share."""
        blocks = self._blocks_of[replica]
        while len(blocks) > share:
            self._drop(blocks.popitem(last=False)[0], replica)

    def _drop(self, block: int, replica: R) -> None:
        """Note that a replica does not hold a block any more."""
        others = self._holder_bits[block] & ~self._bit_of[replica]
        if others:
            self._holder_bits[block] = others
        else:
            del self._holder_bits[block]

    def _of_bits(self, bits: int) -> Iterator[R]:
        """The replicas of the bits that are set."""
        while bits:
            lowest = bits & -bits
            yield self._replica_of_bit[lowest]
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
    known, goes to another replica if that one holds far less. Of equal replicas, the conversation
    decides. A replica is any hashable value.

    Beside others, a router sees only its share of the requests of a conversation. One that it does
    not know goes to its home, which all routers choose alike, whatever each of them knows.
    """

    def __init__(
        self,
        balance: Balance | None = None,
        max_bytes: int = DEFAULT_BYTES,
        *,
        beside_others: bool = False,
    ) -> None:
        """`max_bytes` limits the memory for the prompts of all replicas together.

        Each replica may have REPLICA_BYTES in any case, so many replicas take more memory.
        """
        self.balance = balance or Balance()
        self._is_beside_others = beside_others
        self.index: PrefixIndex[R] = PrefixIndex(max_bytes, REPLICA_BYTES)
        self._salts: dict[R, int] = {}  # what `salt` has computed

    def choose(self, prefix: Prefix, loads: Mapping[R, float]) -> Choice[R]:
        """The replica for a prompt; `loads` has those that can take it, each with its load.

        Records nothing, because the request may go elsewhere. Raises ValueError without replicas.
        """
        max_load = self.balance.limit(min(loads.values()))
        excluded: set[R] = set()
        while True:
            blocks, holders = self.index.longest(prefix, excluded)
            fits = [holder for holder in holders if holder in loads and loads[holder] <= max_load]
            if blocks <= prefix.opening:  # a new conversation, which any replica can begin
                if self._is_beside_others:
                    home = self._home(prefix, [r for r in loads if loads[r] <= max_load])
                    return self._choice(home, self.index.common(prefix, home), prefix)
                fits = self._not_crowded(fits, loads, prefix.opening)
            if fits:
                return self._choice(self._least_busy(prefix, fits, loads), blocks, prefix)
            if not holders:
                break
            excluded.update(holders)  # the next longest beginning counts
        least_busy = _with_least_load(loads, loads)
        candidates = self._not_crowded(least_busy, loads, prefix.opening) or least_busy
        replica = self._least_busy(prefix, candidates, loads)
        return self._choice(replica, self.index.common(prefix, replica), prefix)

    def record(self, prefix: Prefix, replica: R) -> None:
        """Note that the prompt was sent to this replica."""
        self.index.record(prefix, replica)

    def forget(self, replica: R) -> None:
        """Drop what is recorded of a replica that died, or that lost its cache."""
        self.index.forget(replica)
        self._salts.pop(replica, None)

    def _choice(self, replica: R, blocks: int, prefix: Prefix) -> Choice[R]:
        """The choice of a replica that has read this many blocks of the prompt."""
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
        """Of equally busy ones the home."""
        equal = _with_least_load(replicas, loads)
        return equal[0] if len(equal) == 1 else self._home(prefix, equal)

    def _home(self, prefix: Prefix, replicas: Collection[R]) -> R:
        """The replica with the highest random weight for the conversation (rendezvous hashing)."""
        key = prefix.key
        return max(replicas, key=lambda r: mixed(key ^ (self._salts.get(r) or self.salt(r))))

    def salt(self, replica: R) -> int:
        """The replica's part of the weight: 64 bits."""
        text = repr(replica).encode("utf-8", "surrogatepass")
        salt = self._salts[replica] = int.from_bytes(blake2b(text, digest_size=8).digest())
        return salt


def _with_least_load(replicas: Collection[R], loads: Mapping[R, float]) -> list[R]:
    """Those of the replicas that are least busy."""
    least = min(map(loads.__getitem__, replicas))
    return [replica for replica in replicas if loads[replica] == least]


def mixed(number: int) -> int:
    """A number of 64 bits that depends on all bits of `number`."""
    product = number * _MULTIPLIER & _MASK
    return (product ^ product >> 32) * _MULTIPLIER & _MASK
