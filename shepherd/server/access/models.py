"""Keeps requests, and lists of models, to those that their keys allow."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from shepherd.backends.base import Backend, ModelInfo
from shepherd.server.access.key import ApiKey
from shepherd.server.errors import ApiError
from shepherd.server.models import UNKNOWN_MODEL, LoadedModel, Models, ServedModel, unknown_model
from shepherd.server.record import current_key


class AllowedModels:
    """`Models` that refuses those that the key of the request does not allow."""

    def __init__(self, models: Models) -> None:
        self._models = models

    @property
    def default(self) -> Backend:
        """As `Models.default`."""
        return self._models.default

    def lease(
        self, name: str | None, keep_alive: float | None = None
    ) -> AbstractAsyncContextManager[Backend]:
        """As `Models.lease`; entering raises ApiError for a model that is not allowed.

        The name by which the server lists the model decides.
        """
        key = current_key()
        if key is None:
            return self._models.lease(name, keep_alive)
        return self._lease_allowed(key, name, keep_alive)

    async def identify(self, name: str | None) -> str:
        """As `Models.identify`; the error for an unknown name has only the models of the key."""
        try:
            return await self._models.identify(name)
        except ApiError as error:
            if name and error.code == UNKNOWN_MODEL:
                raise unknown_model(name, self.listed()) from error
            raise

    async def refresh(self) -> None:
        """As `Models.refresh`."""
        await self._models.refresh()

    def served(self) -> Sequence[ServedModel]:
        """Those of `Models.served` that the key of the request allows."""
        key, models = current_key(), self._models.served()
        return models if key is None else [m for m in models if key.allows_model(m.info.id)]

    def listed(self) -> Sequence[ModelInfo]:
        """The models of `served`, without their states."""
        return [model.info for model in self.served()]

    def loaded(self) -> Sequence[LoadedModel]:
        """All loaded models, as `Models.loaded`."""
        return self._models.loaded()

    async def unload(self, name: str) -> None:
        """As `Models.unload`."""
        await self._models.unload(name)

    @asynccontextmanager
    async def _lease_allowed(
        self, key: ApiKey, name: str | None, keep_alive: float | None
    ) -> AsyncGenerator[Backend]:
        model = await self.identify(name)
        if not key.allows_model(model):
            raise _refusal(key.name, model)
        async with self._models.lease(name, keep_alive) as backend:
            yield backend


def _refusal(key: str, model: str) -> ApiError:
    message = f"The API key {key} may not use the model {model}."
    return ApiError(403, message, "model_not_allowed", "model")
