"""The routers that are compared; the last one is Shepherd's own."""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from shepherd.affinity import AffinityRouter, Balance, Prefix
from shepherd.affinity.router import DEFAULT_BYTES, REPLICA_BYTES
from shepherd.cli.deploy.arguments import BUSY_SLACK

RANDOM, LEAST_BUSY, HOMES, OWN = range(4)
"""The kinds of routers."""

ROUTERS = {
    "random": RANDOM,
    "least busy": LEAST_BUSY,
    "consistent hash": HOMES,
    "prefix-affine": OWN,
    "ours": OWN,
}
_BALANCES = {"prefix-affine": Balance(1.0, 1e9), "ours": Balance(slack=BUSY_SLACK)}
_PLACES = 64
"""The places of each replica on the ring of hashes."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its conversation, its prompt, and a number from 0 to 1."""

    conversation: int
    prefix: Prefix
    chance: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The limits of what a router of prefixes records: in all, and at least for each replica."""

    max_bytes: int = DEFAULT_BYTES
    replica_bytes: int = REPLICA_BYTES


class Router(Protocol):
    """Chooses the replica of a request."""

    def choose(self, request: Request, loads: Mapping[int, float]) -> int:
        """The replica; `loads` has the requests of each."""
        ...


class RandomRouter:
    """Any replica."""

    def choose(self, request: Request, loads: Mapping[int, float]) -> int:
        return int(request.chance * len(loads))


class LeastBusyRouter:
    """The replica with the fewest requests, a random one of equals."""

    def choose(self, request: Request, loads: Mapping[int, float]) -> int:
        least = min(loads.values())
        equal = [name for name, load in loads.items() if load == least]
        return equal[int(request.chance * len(equal))]


class HashRouter:
    """The replica behind the conversation's place on a ring."""

    def __init__(self, replicas: int, keys: Sequence[int]) -> None:
        self._homes = homes(keys, replicas)

    def choose(self, request: Request, loads: Mapping[int, float]) -> int:
        return self._homes[request.conversation]


class OwnRouter:
    """Shepherd's router of prefixes, in a balance."""

    def __init__(self, balance: Balance, memory: Memory) -> None:
        self._router: AffinityRouter[int] = AffinityRouter(
            balance, max_bytes=memory.max_bytes, replica_bytes=memory.replica_bytes
        )

    def choose(self, request: Request, loads: Mapping[int, float]) -> int:
        replica = self._router.choose(request.prefix, loads).replica
        self._router.record(request.prefix, replica)
        return replica


def homes(keys: Sequence[int], replicas: int) -> list[int]:
    """The replica of each key on a ring of hashes."""
    places = ((_hash(f"{r} {n}"), r) for r in range(replicas) for n in range(_PLACES))
    ring = sorted(places)
    points = [place for place, _ in ring]
    return [ring[bisect(points, int(key)) % len(ring)][1] for key in keys]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def balance_of(name: str) -> Balance:
    """The balance of a router; the prefix-affine one never leaves a cache because of load."""
    return _BALANCES.get(name, Balance())


def make_router(name: str, replicas: int, keys: Sequence[int], memory: Memory) -> Router:
    """A router by its name; `keys` are those of the conversations."""
    match ROUTERS[name]:
        case 0:
            return RandomRouter()
        case 1:
            return LeastBusyRouter()
        case 2:
            return HashRouter(replicas, keys)
        case _:
            return OwnRouter(balance_of(name), memory)
