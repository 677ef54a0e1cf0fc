"""The request router of the replicas: a conversation meets its KV cache."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shepherd.affinity import AffinityRouter, Balance, Prefix
from shepherd.cli.deploy.request import ReplicaRequest
from shepherd.cli.deploy.router_types import RequestRouter

if TYPE_CHECKING:
    from shepherd.cli.deploy.router_types import PendingRequest, ReplicaId, RunningReplica


class PrefixRouter(RequestRouter):
    """Ray's name for it is `shepherd.cli.deploy.router.PrefixRouter`.

    The load of a replica is the number of its requests: those that Ray knows of, at least those
    that this router has sent.
    """

    def initialize_state(self, factor: float | None = None, slack: float | None = None) -> None:
        """Ray passes `request_router_kwargs` here."""
        default = Balance()
        balance = Balance(
            default.factor if factor is None else factor, default.slack if slack is None else slack
        )
        self._affinity: AffinityRouter[str] = AffinityRouter(balance)
        self._running: Counter[str] = Counter()

    async def choose_replicas(
        self,
        candidate_replicas: Sequence["RunningReplica"],
        pending_request: "PendingRequest | None" = None,
    ) -> list[list["RunningReplica"]]:
        """The best replica first, then all others from the least busy one on."""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        if not replicas:
            return []
        loads = {name: self._load(name, replica.replica_id) for name, replica in replicas.items()}
        best = self._affinity.choose(_prefix_of(pending_request), loads).replica
        others = sorted((name for name in replicas if name != best), key=loads.__getitem__)
        return [[replicas[name]] for name in (best, *others)]

    def on_request_routed(
        self, pending_request: "PendingRequest", replica_id: "ReplicaId", result: object
    ) -> None:
        """Note which replica reads the prompt."""
        self._running[replica_id.unique_id] += 1
        prefix = _prefix_of(pending_request)
        if prefix.hashes:
            self._affinity.record(prefix, replica_id.unique_id)

    def on_request_completed(self, replica_id: "ReplicaId", internal_request_id: str) -> None:
        """Note that a replica has one request less."""
        name = replica_id.unique_id
        self._running[name] = max(0, self._running[name] - 1)

    def on_replica_actor_died(self, replica_id: "ReplicaId") -> None:
        """Forget a replica with its cache."""
        super().on_replica_actor_died(replica_id)
        self._forget(replica_id.unique_id)

    def update_replicas(self, replicas: "Sequence[RunningReplica]") -> None:
        """Take over the replicas that Ray has now, and forget the others."""
        before = {replica_id.unique_id for replica_id in self.curr_replicas}
        super().update_replicas(replicas)
        for name in before - {replica.replica_id.unique_id for replica in replicas}:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._affinity.forget(name)
        self._running.pop(name, None)

    def _load(self, name: str, replica_id: "ReplicaId") -> float:
        return max(self._running[name], self.replica_queue_len_cache.get(replica_id) or 0)


def _prefix_of(pending: "PendingRequest | None") -> Prefix:
    request = pending.args[0] if pending is not None and pending.args else None
    return request.prefix if isinstance(request, ReplicaRequest) else Prefix()
