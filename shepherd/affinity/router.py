"""Chooses the replica for a prompt: by its cache, unless that replica is too busy."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

from shepherd.affinity.index import DEFAULT_BYTES, REPLICA_BYTES, PrefixIndex
from shepherd.affinity.prefix import Prefix

R = TypeVar("R", bound=Hashable)

_MASK = 2**64 - 1
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


@dataclass(frozen=True, slots=True)
class Balance:
    """How much busier than the least busy replica the one with the cache may be.

    At most `factor` times its load, plus `slack`. Loads are in requests, or in any other unit.
    """

    factor: float = 1.5
    slack: float = 2.0

    def limit(self, least: float) -> float:
        """The highest load at which the cache still decides."""
        return self.factor * least + self.slack


@dataclass(frozen=True, slots=True)
class Choice(Generic[R]):
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
