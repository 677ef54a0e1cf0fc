"""The models of a server by their names and aliases: `ModelPool` leases them to requests."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import NoReturn

from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.failover import Candidate, FallbackBackend
from shepherd.config.provider_book import ProviderBook
from shepherd.config.server import AliasTargets
from shepherd.config.settings import Config
from shepherd.conversation.model_slot import BackendOpener
from shepherd.server.errors import ApiError
from shepherd.server.models import (
    DEFAULT,
    LoadedModel,
    Models,
    ModelState,
    ServedModel,
    unknown_model,
)
from shepherd.server.pool.catalog import Catalog, CatalogEntry, MachineMemory
from shepherd.server.pool.loaded import LoadedModels, OpenableModel, PoolLimits, Slot
from shepherd.session import Session

logger = logging.getLogger(__name__)

MAX_LOGGED_NAMES = 1000

RELOAD_SECONDS = 10.0
"""The shortest interval in which health checks load a default model that has failed."""

RETRY_SECONDS = 30.0
"""A model of an alias that has failed is tried last for this long."""


class Aliases:
    """The models behind each alias; one with a `*` stands for names that no model has."""

    def __init__(
        self, table: Mapping[str, AliasTargets], random_source: random.Random | None = None
    ) -> None:
        """`random_source` decides between models with weights."""
        self._table = table
        self._random_source = random_source or secrets.SystemRandom()

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def pattern(self, name: str) -> str | None:
        """The first alias whose pattern fits a name."""
        patterns = (alias for alias in self._table if "*" in alias)
        return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)

    def targets(self, alias: str) -> Sequence[str]:
        """The models of an alias, in the order of the settings."""
        targets = self._table[alias]
        return [targets] if isinstance(targets, str) else [*targets]

    def order(self, alias: str) -> Sequence[str]:
        """The order in which the models are tried; one with weights is drawn anew each time."""
        targets = self._table[alias]
        if not isinstance(targets, dict):
            return self.targets(alias)
        # the largest of such draws wins as often as its weight says (Efraimidis and Spirakis)
        draw = self._random_source.random
        draws = {name: draw() ** (1 / weight) for name, weight in targets.items()}
        return sorted(targets, key=lambda name: draws[name], reverse=True)


class UnloadedBackend(Backend):
    """Describes a model that the next request loads; it can't answer itself.

    One that has failed is reachable once it `loads` again.
    """

    def __init__(self, info: ModelInfo, loads: Callable[[], Awaitable[bool]] | None = None) -> None:
        self._info = info
        self._loads = loads

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def prefill_session(self, session: Session, callback: events.EventCallback) -> Prefilled:
        self._refuse()

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        self._refuse()

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        self._refuse()

    async def reachable(self) -> bool:
        return self._loads is None or await self._loads()

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _refuse(self) -> NoReturn:
        raise errors.ModelLoadError(f"The model {self._info.id} is not loaded.")


class ModelPool(Models):
    """The models of a server, of which none is loaded before `load_default`.

    With `any_model`, the default model answers requests for unknown ones.
    """

    def __init__(
        self,
        catalog: Catalog,
        default: OpenableModel,
        loaded: LoadedModels,
        aliases: Aliases,
        *,
        any_model: bool,
    ) -> None:
        self._catalog = catalog
        self._loaded = loaded
        self._aliases = aliases
        self._any_model = any_model
        self._logged_texts: set[str] = set()
        self._failure_times: dict[str, float] = {}
        """When a model of an alias failed last, by its key."""
        self._model = default
        self._info = catalog.default_info  # of the default model, as it was when last loaded

    async def load_default(self) -> None:
        """Load the default model; raises ConfigError and the errors from loading it."""
        async with self._loaded.lease(self._model) as backend:
            self._info = backend.info
        await self._catalog.refresh()

    async def _loads_again(self) -> bool:
        """Whether the default model, which has failed, can be loaded by now; tried now and then.

        No request may come before the server is ready again, so this must not wait for one.
        """
        failed = self._loaded.failures.get(self._model.key, float("-inf"))
        if time.monotonic() - failed < RELOAD_SECONDS:
            return False
        with suppress(errors.ShepherdError):
            await self.load_default()
            return True
        return False

    async def reconfigure(
        self,
        config: Config,
        providers: ProviderBook,
        opener: BackendOpener,
        *,
        reopens: bool,
    ) -> None:
        """Use other settings from now on; models stay, unless one `reopens` them.

        Then running requests end with the earlier ones. Connections to providers are opened again.
        Raises ConfigError and errors from loading the default model, and the earlier settings stay.
        """
        catalog = Catalog(config, providers, opener, self._catalog.memory)
        aliases = Aliases(config.server.aliases)
        model = await asyncio.to_thread(catalog.default)
        if reopens:  # before the lease, which then opens the default model anew
            self._loaded.retire()
        async with self._loaded.lease(model, model.keep_alive) as backend:
            info = backend.info
        old_key = self._model.key

        def leaves(slot: Slot) -> bool:
            """The earlier default model, and connections, which may have other settings now."""
            key = slot.model.key
            return key != model.key and (key == old_key or not slot.is_local)

        self._loaded.retire(leaves)
        self._loaded.limits = replace(
            self._loaded.limits,
            models=config.server.max_models,
            waiting=config.llamacpp.max_queue,
        )
        self._catalog, self._aliases, self._model, self._info = catalog, aliases, model, info
        self._any_model = config.server.any_model
        await catalog.refresh()

    @property
    def default(self) -> Backend:
        """The default model; while it is not loaded, a backend that only describes it."""
        key = self._model.key
        slot = self._loaded.slot(key)
        backend = None if slot is None else slot.backend
        if backend is not None and backend.alive:
            return backend
        # one that has failed is loaded anew: by the next request, or by a health check
        has_failed = backend is not None or (slot is None and key in self._loaded.failures)
        return UnloadedBackend(self._info, self._loads_again if has_failed else None)

    @asynccontextmanager
    async def _open(self, name: str | None, keep_alive: float | None) -> AsyncGenerator[Backend]:
        """The model of a name or alias, loaded."""
        models = await self._find_all(name)
        if len(models) == 1:
            async with self._loaded.lease(models[0], keep_alive) as backend:
                yield backend
            return
        async with AsyncExitStack() as leases:  # of all models that are tried
            # those that failed lately come last; the others keep their order
            models = sorted(models, key=lambda model: self._has_failed(model.key))
            opening = partial(self._open_next, leases, models, keep_alive)
            candidates = [
                Candidate(model.key, partial(opening, index)) for index, model in enumerate(models)
            ]
            yield await FallbackBackend.open(candidates, _is_failure)

    async def identify(self, name: str | None) -> str:
        """The name that a response has for its model: an alias, else that in the list of models.

        A provider's model that is not in the list keeps the name of the request.
        """
        alias = await self._alias(name)
        if alias is not None:
            return alias
        model = await self._find(name)
        if model is self._model:
            return self.default.info.id
        for entry in self._catalog.entries.values():
            if entry.model.key == model.key:
                return entry.info.id
        return model.key

    async def refresh(self) -> None:
        """Look for new files and providers."""
        await self._catalog.refresh()

    def every(self) -> Sequence[ServedModel]:
        """The default model, those of the catalog, and the aliases."""
        default = CatalogEntry(self.default.info, self._model)
        entries = {default.info.id: default}
        for entry in self._catalog.entries.values():
            if entry.model.key != self._model.key:
                entries.setdefault(entry.info.id, entry)
            else:  # the default model under the name of its file, whose size is known
                default = replace(default, size=default.size or entry.size)
                entries[default.info.id] = default
        for alias in self._aliases:
            names = self._aliases.targets(alias)
            targets = [default if self._is_default(n) else self._catalog.entry(n) for n in names]
            first_known = next((target for target in targets if target is not None), None)
            if first_known is not None:  # what it tells of itself is that of its first model
                info = replace(first_known.info, id=alias)
                entries[alias] = replace(first_known, info=info)
        return [self._served(entry) for entry in entries.values()]

    def loaded(self) -> Sequence[LoadedModel]:
        """The models in memory, and the providers that are connected."""
        names = {entry.model.key: entry.info.id for entry in self._catalog.entries.values()}
        # the default may be a model outside of the catalog
        names[self._model.key] = self.default.info.id
        return [
            LoadedModel(names.get(key, key), backend, memory)
            for key, backend, memory in self._loaded.loaded()
        ]

    async def unload(self, name: str) -> None:
        """Unload a model, also the default one; its next request loads it again."""
        model = await self._find(name)
        try:
            await self._loaded.unload(model.key)
        except errors.BusyError as error:
            raise ApiError(409, str(error), "model_in_use", "model") from error

    async def aclose(self) -> None:
        """Close all models."""
        await self._loaded.aclose()

    def _served(self, entry: CatalogEntry) -> ServedModel:
        """The model of an entry with its state; a loaded one knows more of itself."""
        slot = self._loaded.slot(entry.model.key)
        if slot is None:
            return ServedModel(entry.info, ModelState.UNLOADED, entry.size)
        info = entry.info
        if slot.backend is not None:  # under the names of the list, which clients send
            info = replace(slot.backend.info, id=info.id, owned_by=info.owned_by)
        expires = slot.expires
        if expires is not None:  # from the loop's time to a Unix time
            expires += time.time() - asyncio.get_running_loop().time()
        return ServedModel(info, slot.state, entry.size, expires, slot.since, slot.needs)

    async def _open_next(
        self,
        leases: AsyncExitStack,
        models: Sequence[OpenableModel],
        keep_alive: float | None,
        index: int,
    ) -> Backend:
        """Lease one of the models of an alias; those before it have failed."""
        for failed in models[:index]:
            self._failure_times[failed.key] = time.monotonic()
        try:
            return await leases.enter_async_context(self._loaded.lease(models[index], keep_alive))
        except errors.InvalidRequestError as error:  # the provider lacks the model
            raise errors.ModelLoadError(str(error)) from error

    def _has_failed(self, key: str) -> bool:
        """Whether a model has failed so recently that others are tried before it."""
        return time.monotonic() - self._failure_times.get(key, float("-inf")) < RETRY_SECONDS

    async def _find(self, name: str | None) -> OpenableModel:
        """The model of a name; raises ApiError if there is none."""
        return (await self._find_all(name))[0]

    async def _find_all(self, name: str | None) -> Sequence[OpenableModel]:
        """The models of a name in the order in which they are tried, at least one."""
        if not name:
            return [self._model]
        alias = await self._alias(name)
        targets = [name] if alias is None else self._aliases.order(alias)
        models: list[OpenableModel] = []
        for target in targets:
            model = await self._find_one(target)
            if model is not None:
                models.append(model)
            elif alias is not None:
                text = f"The alias {alias!r} names {target!r}, which is not a model of this server"
                self._log_once(text, logging.WARNING)
        if models:
            return models
        if not self._any_model:
            raise unknown_model(name, self.listed())
        self._log_once(f"The default model answers requests for the model {name[:200]!r}")
        return [self._model]

    async def _alias(self, name: str | None) -> str | None:
        """The alias that a name means; a pattern comes behind all models."""
        if not name or name in self._aliases:
            return name or None
        pattern = self._aliases.pattern(name)
        return pattern if pattern and await self._find_one(name) is None else None

    async def _find_one(self, name: str) -> OpenableModel | None:
        """The model of a name that is not an alias, None if there is none."""
        if self._is_default(name):
            return self._model
        model = await self._catalog.find(name)
        # the default model has settings that the catalog's entry of its file lacks
        return self._model if model is not None and model.key == self._model.key else model

    def _is_default(self, name: str) -> bool:
        return name in (DEFAULT, self._info.id, self.default.info.id)

    def _log_once(self, text: str, level: int = logging.INFO) -> None:
        """Log a text about an unknown name once; clients can't fill the log with names."""
        if text not in self._logged_texts and len(self._logged_texts) < MAX_LOGGED_NAMES:
            self._logged_texts.add(text)
            logger.log(level, "%s", text)


async def open_pool(config: Config, providers: ProviderBook, opener: BackendOpener) -> ModelPool:
    """The models of the settings; loads none, and raises ConfigError for a wrong setting."""
    section = config.server
    memory = await asyncio.to_thread(MachineMemory, config.llamacpp, section.memory_mib)
    limits = PoolLimits(
        memory=memory.limit,
        models=section.max_models,
        waiting=config.llamacpp.max_queue,
    )
    catalog = Catalog(config, providers, opener, memory)
    default = await asyncio.to_thread(catalog.default)
    loaded, aliases = LoadedModels(limits), Aliases(section.aliases)
    return ModelPool(catalog, default, loaded, aliases, any_model=section.any_model)


def _is_failure(error: errors.ShepherdError) -> bool:
    """Whether another model may succeed: the error is not the request's own."""
    return not isinstance(error, errors.InvalidRequestError | errors.ContextFullError)
