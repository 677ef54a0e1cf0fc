"""The models that a server offers: a request leases one for as long as it runs."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from shepherd.backends.base import Backend, ModelInfo


class Models(Protocol):
    """What requests choose from by name."""

    def lease(self, name: str | None) -> AbstractAsyncContextManager[Backend]:
        """The backend of a model, which stays loaded until the context is left.

        None is the default model. Entering raises ApiError for an unknown name.
        """
        ...

    def listed(self) -> Sequence[ModelInfo]:
        """The models on offer, the default first."""
        ...


class OneModel:
    """One loaded model, which answers under any name."""

    def __init__(self, current_backend: Callable[[], Backend]) -> None:
        self._current_backend = current_backend

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncGenerator[Backend]:
        """The loaded model."""
        yield self._current_backend()

    def listed(self) -> Sequence[ModelInfo]:
        """The loaded model."""
        return [self._current_backend().info]
