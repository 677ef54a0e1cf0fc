"""Checks whether a provider answers at all."""

import asyncio

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.api.http.client import ApiClient
from shepherd.errors import BackendError, UnreachableError

PATIENCE = 5.0
CACHE_SECONDS = 5.0
"""Seconds: the longest wait for an answer, and the time for which a result is reused."""


class Contact:
    """Requests the list of models; simultaneous callers share one request."""

    def __init__(self, client: ApiClient, adapter: Adapter) -> None:
        self._client = client
        self._adapter = adapter
        self._asking = asyncio.Lock()
        self._reachable = False
        self._until: float | None = None

    async def there(self) -> bool:
        """Whether an answer arrived; a refusal is also an answer."""
        async with self._asking:
            if self._until is None or self._client.clock() >= self._until:
                self._reachable = await self._ask()
                self._until = self._client.clock() + CACHE_SECONDS
            return self._reachable

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._client.fetch(self._adapter.models(), max_attempts=1)
        except (TimeoutError, UnreachableError):
            return False
        except BackendError:
            pass  # a wrong key, no list of models, too many requests
        return True
