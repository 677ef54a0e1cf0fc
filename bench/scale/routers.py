"""The routers that are compared; the last one is Shepherd's own."""

import random
from bisect import bisect
from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol

from shepherd.affinity import AffinityRouter, Balance, Prefix
from shepherd.cli.deploy.arguments import BUSY_SLACK


class Router(Protocol):
    """Chooses the replica of a request."""

    def choose(self, prefix: Prefix, loads: Mapping[int, float]) -> int:
        """The replica; `loads` has the requests of each."""
        ...


class RandomRouter:
    """Any replica."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def choose(self, prefix: Prefix, loads: Mapping[int, float]) -> int:
        return self._random.randrange(len(loads))


class LeastBusyRouter(RandomRouter):
    """The replica with the fewest requests, a random one of equals."""

    def choose(self, prefix: Prefix, loads: Mapping[int, float]) -> int:
        least = min(loads.values())
        return self._random.choice([name for name, load in loads.items() if load == least])


class HashRouter:
    """The replica behind the conversation's place on a ring."""

    _PLACES = 64

    def __init__(self, replicas: int) -> None:
        places = ((_hash(f"{r} {n}"), r) for r in range(replicas) for n in range(self._PLACES))
        self._ring = sorted(places)
        self._keys = [place for place, _ in self._ring]

    def choose(self, prefix: Prefix, loads: Mapping[int, float]) -> int:
        return self._ring[bisect(self._keys, _hash(str(prefix.key))) % len(self._ring)][1]


class OwnRouter:
    """Shepherd's router of prefixes, in a balance."""

    def __init__(self, balance: Balance) -> None:
        self._router: AffinityRouter[int] = AffinityRouter(balance)

    def choose(self, prefix: Prefix, loads: Mapping[int, float]) -> int:
        replica = self._router.choose(prefix, loads).replica
        self._router.record(prefix, replica)
        return replica


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


ROUTERS = ("random", "least busy", "consistent hash", "prefix-affine", "ours")


def make_router(name: str, replicas: int) -> Router:
    """A router by its name; the prefix-affine one never leaves a cache because of load."""
    if name == "random":
        return RandomRouter()
    if name == "least busy":
        return LeastBusyRouter()
    if name == "consistent hash":
        return HashRouter(replicas)
    if name == "prefix-affine":
        return OwnRouter(Balance(1.0, 1e9))
    return OwnRouter(Balance(slack=BUSY_SLACK))
