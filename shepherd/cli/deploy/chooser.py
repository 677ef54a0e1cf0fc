"""The choice of a replica for a request, with the requests that are on their way."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct

from shepherd.affinity import AffinityRouter, Balance, Prefix

WAY_SECONDS = 2.0
"""The time in which a request is sent to its replica, or was given up."""


class _Choice(Struct, frozen=True):
    """The replica of a request; it counts as busier by one until `expires` on the clock."""

    replica: str
    expires: float


class ReplicaChooser:
    """Sends conversations to the replicas that know them, in `balance`.

    The load of a replica is the number of its requests: those that Ray knows of, at least those
    that were sent from here, and those for which it has just been chosen.
    """

    def __init__(
        self,
        balance: Balance,
        clock: Callable[[], float] = time.monotonic,
        *,
        beside_others: bool = False,
    ) -> None:
        self._clock = clock
        self._affinity: AffinityRouter[str] = AffinityRouter(balance, beside_others=beside_others)
        self._running: Counter[str] = Counter()  # requests that were sent from here, by replica
        self._unsent: dict[str, _Choice] = {}  # by request

    def rank(self, request: str, prefix: Prefix, lengths: Mapping[str, int]) -> list[str]:
        """The best replica for a request first, then all others from the least busy one on.

        `lengths` has the known length of each replica's queue. A request may be ranked again.
        """
        coming = self._coming(request)
        loads: dict[str, float] = {}
        for name, length in lengths.items():
            # Ray's length lags behind what was sent from here, and other routers send requests too
            known = max(self._running[name], length)
            loads[name] = float(known + coming[name])
        best = self._affinity.choose(prefix, loads).replica
        self._unsent[request] = _Choice(best, self._clock() + WAY_SECONDS)
        return [best, *sorted((name for name in loads if name != best), key=loads.__getitem__)]

    def note_sent(self, request: str, prefix: Prefix, replica: str) -> None:
        """A request was sent, perhaps to another replica than the best one."""
        self._unsent.pop(request, None)
        self._running[replica] += 1
        if prefix.hashes:
            self._affinity.record(prefix, replica)

    def note_end(self, replica: str) -> None:
        """A request that was sent has ended."""
        # a replica that was forgotten may still report the end of a request
        self._running[replica] = max(0, self._running[replica] - 1)

    def forget(self, replica: str) -> None:
        """A replica has ended, and its cache with it."""
        self._affinity.forget(replica)
        self._running.pop(replica, None)

    def _coming(self, request: str) -> Counter[str]:
        """The other requests that were not sent yet, by replica."""
        now = self._clock()
        self._unsent = {
            name: choice
            for name, choice in self._unsent.items()
            if choice.expires > now and name != request
        }
        return Counter(choice.replica for choice in self._unsent.values())
