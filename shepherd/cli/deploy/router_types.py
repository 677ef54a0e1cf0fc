"""The types of Ray's interface for request routers; Ray itself is optional.

Importing this imports Ray.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

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
