"""The backends of other providers: opened for the first question, and kept for the next."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from shepherd.backends.base import Backend


class OtherBackends(Protocol):
    """The backends of models that can be named."""

    async def get(self, provider: str) -> Backend:
        """The backend of PROVIDER or PROVIDER/MODEL; raises ShepherdError."""
        ...


class DelegateBackends:
    """One backend for each provider in use, by the provider's name or by PROVIDER/MODEL."""

    def __init__(self, open_backend: Callable[[str], Awaitable[Backend]]) -> None:
        self._open = open_backend
        self._backends: dict[str, Backend] = {}
        self._changing = asyncio.Lock()

    async def get(self, provider: str) -> Backend:
        """The provider's backend, opened again if the last one has failed permanently.

        Raises the error of a failed start.
        """
        async with self._changing:
            backend = self._backends.get(provider)
            if backend is not None and backend.alive:
                return backend
            await self._close(provider)
            backend = self._backends[provider] = await self._open(provider)
            return backend

    async def close(self, provider: str) -> None:
        """Close the provider's backends; the next question opens a new one."""
        async with self._changing:
            for name in [*self._backends]:
                if name.partition("/")[0] == provider.partition("/")[0]:
                    await self._close(name)

    async def aclose(self) -> None:
        """Close all backends."""
        for provider in [*self._backends]:
            await self.close(provider)

    async def _close(self, provider: str) -> None:
        backend = self._backends.pop(provider, None)
        if backend is not None:
            await backend.aclose()


PREFIX = "ask_"


def tool_names(providers: Iterable[str]) -> dict[str, str]:
    """A tool's name for each provider, by the provider's name; every API accepts these names.

    Names that differ only in symbols get a number at the end, which never changes.
    """
    names: dict[str, str] = {}
    used: set[str] = set()
    for provider in sorted(providers):
        base = name = PREFIX + re.sub(r"[^a-z0-9]", "_", provider)
        number = 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        names[provider] = name
    return names
