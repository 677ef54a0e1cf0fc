"""The request router of the replicas: a conversation meets its KV cache.

Importing this imports Ray, which is optional; its types stand here as far as they are used.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from shepherd.affinity import Balance, Prefix
from shepherd.cli.deploy.chooser import ReplicaChooser
from shepherd.cli.deploy.request import ReplicaRequest

if TYPE_CHECKING:

    class ReplicaId(Protocol):
        """The id of a replica."""

        unique_id: str

    class RunningReplica(Protocol):
        """A replica that takes requests."""

        @property
        def replica_id(self) -> ReplicaId: ...

    class Metadata(Protocol):
        """What Ray notes of a request."""

        internal_request_id: str

    class PendingRequest(Protocol):
        """A request that waits for a replica."""

        metadata: Metadata
        args: Sequence[object]

    class QueueLengths(Protocol):
        """The lengths of the replicas' queues, as far as they are known."""

        def get(self, replica_id: ReplicaId) -> int | None: ...

    class RequestRouter:
        """The base of request routers: `ray.serve.request_router.RequestRouter`."""

        @property
        def replica_queue_len_cache(self) -> QueueLengths: ...

        @property
        def curr_replicas(self) -> Mapping[ReplicaId, RunningReplica]: ...

        def on_replica_actor_died(self, replica_id: ReplicaId) -> None: ...

        def update_replicas(self, replicas: Sequence[RunningReplica]) -> None: ...

else:
    from ray.serve.request_router import RequestRouter as RequestRouter  # noqa: PLC0414


class PrefixRouter(RequestRouter):
    """Ray imports it as `shepherd.cli.deploy.router.PrefixRouter`."""

    def initialize_state(self, factor: float | None = None, slack: float | None = None) -> None:
        """Ray passes `request_router_kwargs` here."""
        default = Balance()
        self._chooser = ReplicaChooser(
            Balance(
                default.factor if factor is None else factor,
                default.slack if slack is None else slack,
            )
        )

    async def choose_replicas(
        self,
        candidate_replicas: Sequence["RunningReplica"],
        pending_request: "PendingRequest | None" = None,
    ) -> list[list["RunningReplica"]]:
        """The replicas in the order in which Ray tries them."""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        if not replicas:
            return []
        queues = self.replica_queue_len_cache
        lengths = {name: queues.get(one.replica_id) or 0 for name, one in replicas.items()}
        request = "" if pending_request is None else pending_request.metadata.internal_request_id
        ranked = self._chooser.rank(request, _prefix_of(pending_request), lengths)
        return [[replicas[name]] for name in ranked]

    def on_request_routed(
        self, pending_request: "PendingRequest", replica_id: "ReplicaId", result: object
    ) -> None:
        """Note which replica reads the prompt."""
        request = pending_request.metadata.internal_request_id
        self._chooser.note_sent(request, _prefix_of(pending_request), replica_id.unique_id)

    def on_request_completed(self, replica_id: "ReplicaId", internal_request_id: str) -> None:
        """Note that a replica has one request less."""
        self._chooser.note_end(replica_id.unique_id)

    def on_replica_actor_died(self, replica_id: "ReplicaId") -> None:
        """Forget a replica with its cache."""
        super().on_replica_actor_died(replica_id)
        self._chooser.forget(replica_id.unique_id)

    def update_replicas(self, replicas: "Sequence[RunningReplica]") -> None:
        """Take over the replicas that Ray has now, and forget the others."""
        before = {replica_id.unique_id for replica_id in self.curr_replicas}
        super().update_replicas(replicas)
        for name in before - {replica.replica_id.unique_id for replica in replicas}:
            self._chooser.forget(name)


def _prefix_of(pending: "PendingRequest | None") -> Prefix:
    request = pending.args[0] if pending is not None and pending.args else None
    return request.prefix if isinstance(request, ReplicaRequest) else Prefix()
