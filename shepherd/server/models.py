"""The models that a server offers: a request leases one for as long as it runs."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd.backends.base import Backend, Memory, ModelInfo
from shepherd.server.errors import ApiError
from shepherd.server.record import current_key

MAX_NAMES = 10
UNKNOWN_MODEL = "model_not_found"
DEFAULT = "default"
"""A name of the default model in requests."""


class ModelState(StrEnum):
    """Whether a model can answer at once, in llama.cpp's words."""

    LOADED = "loaded"
    LOADING = "loading"
    UNLOADED = "unloaded"


class ServedModel(Struct, frozen=True):
    """A model on offer; of one that is not loaded, `info` has what is known of it.

    `size` is that of its files in bytes, 0 if unknown. `expires` is the Unix time at which it is
    unloaded unless it is used, None for no time. One that loads does so `since` a Unix time.
    `memory` is what it takes while it is loaded.
    """

    info: ModelInfo
    state: ModelState = ModelState.LOADED
    size: int = 0
    expires: float | None = None
    since: float | None = None
    memory: Memory = field(default_factory=Memory)


class LoadedModel(Struct, frozen=True):
    """A loaded model by its name in lists; `memory` is an estimate, nothing for elsewhere."""

    name: str
    backend: Backend
    memory: Memory = field(default_factory=Memory)


class Models(ABC):
    """What requests choose from by name, as far as their keys allow it."""

    @property
    @abstractmethod
    def default(self) -> Backend:
        """The default model; it may be unloaded, and is not for requests."""

    @abstractmethod
    async def identify(self, name: str | None) -> str:
        """The name under which the server lists a model; raises ApiError for an unknown name."""

    @abstractmethod
    def every(self) -> Sequence[ServedModel]:
        """The models on offer, the default first, as of the last `refresh`.

        One whose id has a `*` stands for names that no other has.
        """

    @abstractmethod
    def loaded(self) -> Sequence[LoadedModel]:
        """The models that are loaded."""

    @abstractmethod
    async def unload(self, name: str) -> None:
        """Unload a model; raises ApiError for an unknown name, and for one that is busy."""

    @abstractmethod
    def _open(
        self, name: str | None, keep_alive: float | None
    ) -> AbstractAsyncContextManager[Backend]:
        """`lease` for a model that the key of the request allows."""

    @abstractmethod
    async def refresh(self) -> None:
        """Look for models that are new; never raises for one that can't be read."""

    @asynccontextmanager
    async def lease(
        self, name: str | None, keep_alive: float | None = None
    ) -> AsyncGenerator[Backend]:
        """The backend of a model, which stays loaded until the context is left.

        None is the default model. `keep_alive` is how long it stays loaded afterwards, in seconds;
        None as it was. Entering raises ApiError for an unknown name, and for a model that the key
        of the request does not allow: the name by which the server lists it decides. It also raises
        the errors from loading the model.
        """
        key = current_key()
        if key is not None:
            model = await self.identify(name)
            if not key.allows_model(model):
                message = f"The API key {key.name} may not use the model {model}."
                raise ApiError(403, message, "model_not_allowed", "model")
        async with self._open(name, keep_alive) as backend:
            yield backend

    def allowed(self) -> Sequence[ServedModel]:
        """The models of `every` that the key of the request allows."""
        key, models = current_key(), self.every()
        return models if key is None else [m for m in models if key.allows_model(m.info.id)]

    def served(self) -> Sequence[ServedModel]:
        """The models of `allowed` that have one name."""
        return [model for model in self.allowed() if "*" not in model.info.id]

    def listed(self) -> Sequence[ModelInfo]:
        """The models of `served`, without their states."""
        return [model.info for model in self.served()]


async def find_model(name: str, models: Models) -> ServedModel | None:
    """The model on offer under that name, None if there is none; looks for new ones first."""
    await models.refresh()
    listed = models.default.info.id if name == DEFAULT else name
    allowed = {model.info.id: model for model in models.allowed()}
    patterns = (name for name in allowed if "*" in name and fnmatchcase(listed, name))
    model = allowed.get(listed if listed in allowed else next(patterns, ""))
    return model and replace(model, info=replace(model.info, id=listed))


def unknown_model(name: str, known: Iterable[ModelInfo]) -> ApiError:
    """The error for a model that the server does not have."""
    names = [f"'{info.id}'" for info in known]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    listed = ", ".join(names[:MAX_NAMES])
    message = f"The model '{name[:200]}' does not exist; this server has {listed or 'none'}{more}."
    return ApiError(404, message, UNKNOWN_MODEL, "model")


class OneModel(Models):
    """One loaded model, which answers under any name."""

    def __init__(self, current_backend: Callable[[], Backend]) -> None:
        self._current_backend = current_backend

    @property
    def default(self) -> Backend:
        return self._current_backend()

    async def identify(self, name: str | None) -> str:
        return self.default.info.id

    def every(self) -> Sequence[ServedModel]:
        return [ServedModel(self.default.info)]

    def loaded(self) -> Sequence[LoadedModel]:
        return [LoadedModel(self.default.info.id, self.default)]

    async def refresh(self) -> None:
        """There is nothing to look for."""

    async def unload(self, name: str) -> None:
        message = f"{self.default.info.id} is this server's only model; it stays loaded."
        raise ApiError(409, message, "model_in_use", "model")

    @asynccontextmanager
    async def _open(self, name: str | None, keep_alive: float | None) -> AsyncGenerator[Backend]:
        yield self.default
