"""Keeps requests to the models that their keys allow."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from shepherd.backends.base import Backend, ModelInfo
from shepherd.server.access.current import current_key
from shepherd.server.errors import ApiError
from shepherd.server.models import Models


class AllowedModels:
    """`Models` that refuses those that the key of the request does not allow."""

    def __init__(self, models: Models) -> None:
        self._models = models

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncGenerator[Backend]:
        """As `Models.lease`; raises ApiError for a model that is not allowed.

        A name counts if the server lists it. Any other one may stand for any model, so the model
        that answers decides.
        """
        key = current_key()
        listed = key is not None and name in {info.id for info in self._models.listed()}
        if key is not None and listed and not key.allows_model(name or ""):
            raise _refusal(key.name, name or "")
        async with self._models.lease(name) as backend:
            model = backend.info.id
            if key is not None and not listed and not key.allows_model(model):
                raise _refusal(key.name, model)
            yield backend

    def listed(self) -> Sequence[ModelInfo]:
        """All models, as `Models.listed`."""
        return self._models.listed()


def _refusal(key: str, model: str) -> ApiError:
    message = f"The API key {key} may not use the model {model}."
    return ApiError(403, message, "model_not_allowed", "model")
