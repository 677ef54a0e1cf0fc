"""The request router of the replicas: a conversation meets its KV cache.

Importing this imports Ray, which is optional, so that its objects have no types here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shepherd.affinity import Balance, Prefix
from shepherd.cli.deploy.chooser import ReplicaChooser
from shepherd.cli.deploy.request import ReplicaRequest

if TYPE_CHECKING:

    class RequestRouter:
        """What is used of Ray's class."""

        replica_queue_len_cache: Any
        curr_replicas: Any

        def on_replica_actor_died(self, replica_id: Any) -> None: ...

        def update_replicas(self, replicas: Sequence[Any]) -> None: ...

else:
    from ray.serve.request_router import RequestRouter as RequestRouter  # noqa: PLC0414


class PrefixRouter(RequestRouter):
    """Ray imports it as `shepherd.cli.deploy.router.PrefixRouter`."""

    def initialize_state(
        self,
        factor: float = Balance().factor,
        slack: float = Balance().slack,
        *,
        beside_others: bool = False,
    ) -> None:
        """Ray passes `request_router_kwargs` here."""
        self._chooser = ReplicaChooser(Balance(factor, slack), beside_others=beside_others)

    async def choose_replicas(
        self, candidate_replicas: Sequence[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """The replicas in the order in which Ray tries them."""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        if not replicas:
            return []
        known_lengths = self.replica_queue_len_cache
        # None for one that was not asked lately
        lengths = {
            name: known_lengths.get(replica.replica_id) or 0 for name, replica in replicas.items()
        }
        request = "" if pending_request is None else pending_request.metadata.internal_request_id
        ranked = self._chooser.rank(request, _prefix_of(pending_request), lengths)
        return [[replicas[name]] for name in ranked]  # Ray tries the lists one after the other

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: object) -> None:
        """Note which replica reads the prompt."""
        request = pending_request.metadata.internal_request_id
        self._chooser.note_sent(request, _prefix_of(pending_request), replica_id.unique_id)

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """Note that a replica has one request less."""
        self._chooser.note_end(replica_id.unique_id)

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """Forget a replica with its cache."""
        super().on_replica_actor_died(replica_id)
        self._chooser.forget(replica_id.unique_id)

    def update_replicas(self, replicas: Sequence[Any]) -> None:
        """Take over the replicas that Ray has now, and forget the others."""
        before = {replica_id.unique_id for replica_id in self.curr_replicas}
        super().update_replicas(replicas)
        for name in before - {replica.replica_id.unique_id for replica in replicas}:
            self._chooser.forget(name)


def _prefix_of(pending_request: Any) -> Prefix:
    """The prefix of a request to a replica; an empty one for calls that Ray makes itself."""
    arguments = () if pending_request is None else pending_request.args
    request = arguments[0] if arguments else None
    return request.prefix if isinstance(request, ReplicaRequest) else Prefix()
