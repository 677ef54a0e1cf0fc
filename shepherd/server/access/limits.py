"""Keeps keys to their limits in one process, with an SQLite file of what was used before."""

import logging
from typing import Protocol

from shepherd.server.access.key import ApiKey
from shepherd.server.access.limiter import Limiter, Resource
from shepherd.server.access.usage import Charge, UsageError, UsageStore
from shepherd.server.errors import ApiError

logger = logging.getLogger(__name__)


class Limits(Protocol):
    """What keys may still use; for one event loop."""

    async def count_request(self, key: ApiKey) -> None:
        """Count a request; raises ApiError if a limit is reached, or can't be checked."""
        ...

    async def reserve_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """Hold `wished` tokens, or as many as are left, but at least `needed`.

        Raises ApiError if they are not left, or if that can't be checked.
        """
        ...

    def settle_tokens(self, key: ApiKey, reserved: int, used: int) -> None:
        """Replace held tokens by those that were used."""
        ...

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the limits for the headers of a response."""
        ...


class LocalLimits:
    """The limits of keys that only this process serves; without a store, nothing is kept."""

    def __init__(self, store: UsageStore | None = None, limiter: Limiter | None = None) -> None:
        self._store = store
        self._limiter = limiter or Limiter()
        self._day_is_known = True
        if store is not None:
            self._restore(store)

    async def count_request(self, key: ApiKey) -> None:
        """See `Limits`."""
        limits = key.limits
        if not self._day_is_known and (limits.requests_per_day or limits.tokens_per_day):
            message = "The use of this key in the last day is unknown; the server's log says why."
            raise ApiError(503, message, "limits_unavailable")
        self._limiter.count_request(key)
        self._charge(key, Resource.REQUESTS, 1)

    async def reserve_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """See `Limits`."""
        return self._limiter.reserve_tokens(key, needed, wished)

    def settle_tokens(self, key: ApiKey, reserved: int, used: int) -> None:
        """See `Limits`."""
        self._limiter.settle_tokens(key, reserved, used)
        self._charge(key, Resource.TOKENS, used)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """See `Limits`."""
        return self._limiter.headers(key)

    def _charge(self, key: ApiKey, resource: Resource, amount: int) -> None:
        if self._store is not None:
            moment = int(self._limiter.clock())
            self._store.charge(Charge(key.name, resource, moment, amount))

    def _restore(self, store: UsageStore) -> None:
        try:
            charges = store.load_charges(self._limiter.clock())
        except UsageError as error:
            logger.error("Keys with limits per day are refused: %s", error)
            self._day_is_known = False
            return
        for charge in charges:
            resource = Resource(charge.resource)
            self._limiter.restore(charge.key, resource, charge.amount, charge.moment)
