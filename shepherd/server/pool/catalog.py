"""Finds the models that requests name: files of the models directory, and providers."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from shepherd import durations, errors
from shepherd.backends.base import Backend, Memory, ModelInfo, ModelKind
from shepherd.catalog.model_files import SUFFIX, ModelFile, locate_model, model_name, models_in
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.provider import Provider, missing_type
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import with_provider
from shepherd.conversation.model_slot import BackendOpener
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model
from shepherd.server.pool.loaded import OpenableModel

logger = logging.getLogger(__name__)

SCAN_SECONDS = 2.0
"""Directories and files of settings are not read again sooner."""

KEEP_ALIVE = "5m"
"""How long a model stays without requests by default, unless it is the default model."""

_MODEL = re.compile(r"[A-Za-z0-9@][\w.:@+-]*(?:/[A-Za-z0-9@][\w.:@+-]*)*", re.ASCII)
"""Names of a provider's models; others could change the address of a request."""

_MAX_NAME = 200

_MIB = 1024**2

HEADER_SECONDS = 1.0
"""The time for headers of new files in one look; the others follow in the next ones."""

_Header: TypeAlias = tuple[str, ModelFile, float]
"""A model's name, its file, and when that changed, as a Unix time."""


class ServedFile(Struct, frozen=True):
    """A model's file, and what its header tells."""

    path: Path
    size: int
    info: ModelInfo


class ModelFolder:
    """The built-in model, and the models directory; files that can't be loaded are left out."""

    def __init__(self, settings: LlamaCppSection) -> None:
        self._settings = settings
        self._infos: dict[_Header, ModelInfo | None] = {}
        """What the headers tell; None for a damaged file."""

    def look(self) -> Mapping[str, ServedFile]:
        """The models by their paths in the directory, without suffix; reads new headers."""
        directory = self._settings.models_path
        builtin = builtin_model()
        files = {BUILTIN_NAME: ModelFile(builtin, builtin.stat().st_size)}
        for file in models_in(directory):
            relative = file.path.relative_to(directory)
            name = str(relative.with_name(model_name(relative.name)))
            files.setdefault(name, file)  # the built-in model keeps its name
        until = time.monotonic() + HEADER_SECONDS
        infos: dict[_Header, ModelInfo | None] = {}  # without files that have changed or left
        served: dict[str, ServedFile] = {}
        for name, file in files.items():
            header = name, file, _change_time(file.path)
            if header in self._infos:
                infos[header] = self._infos[header]
            elif time.monotonic() < until:
                infos[header] = _described(name, file.path, self._settings)
            # a header for which the time was too short is read in a later look
            info = infos.get(header, _undescribed(name, self._settings))
            if info is not None:
                served[name] = ServedFile(file.path, file.size, info)
        self._infos = infos
        return served


class MachineMemory:
    """The memory of this machine for models, without what other programs use.

    That of GPUs is measured when it is first needed: a server of providers loads no llama.cpp.
    """

    def __init__(self, settings: LlamaCppSection, memory_mib: int = 0) -> None:
        """Measures the CPU's memory, unless `memory_mib` limits it."""
        from shepherd.backends.llamacpp.native.devices import available_memory

        self._settings = settings
        self._free = available_memory()
        self._limit = memory_mib * _MIB or self._free

    @cached_property
    def _vram(self) -> int:
        """The free bytes of all GPUs that models may use."""
        from shepherd.backends.llamacpp.native.fitting import free_memory, model_gpus

        return free_memory(model_gpus(self._settings)).vram

    def limit(self) -> Memory:
        """The limit for all models together; that of GPUs is 0 without any. Blocks."""
        return Memory(self._limit, self._vram)

    def with_cache(self, config: Config) -> Config:
        """The settings with the size of each model's prompt cache, as a part of the limit."""
        from shepherd.backends.llamacpp.cache.disk_cache import cache_capacity

        size = cache_capacity(config.llamacpp, self._limit) // _MIB
        engine = config.llamacpp.model_copy(update={"cache_ram_mib": size})
        return config.model_copy(update={"llamacpp": engine})

    def needs(self, path: Path, settings: LlamaCppSection) -> Memory:
        """About what a model takes when no other model is loaded, with its prompt cache; blocks.

        Raises ModelLoadError for a damaged file.
        """
        from shepherd.backends.llamacpp.native.fitting import fit_model
        from shepherd.backends.llamacpp.native.gguf import check_model_file
        from shepherd.backends.llamacpp.vision.projector import projector_bytes

        limit = Memory(self._free, self._vram)
        header = check_model_file(path)
        fit = fit_model(header, settings, limit=limit)
        # the projector, which reads images, goes where the model goes
        size = projector_bytes(path, header, settings)
        projector = Memory(vram=size) if fit.demand.gpus else Memory(ram=size)
        return fit.memory + projector + Memory(ram=max(0, settings.cache_ram_mib) * _MIB)


def _undescribed(name: str, settings: LlamaCppSection) -> ModelInfo:
    """A local model whose header was not read: it counts as one that writes text."""
    trained_tools = BUILTIN_TOOLS if name == BUILTIN_NAME else None
    return ModelInfo(
        name,
        "llamacpp",
        settings.context_size,
        trained_tools=trained_tools,
        vision=False,
        raw_prompts=True,
    )


def _described(name: str, path: Path, settings: LlamaCppSection) -> ModelInfo | None:
    """The model of a file, as its header tells; None if the file is damaged."""
    from shepherd.backends.llamacpp.embedding_engine import kind_of, pooling_of
    from shepherd.backends.llamacpp.native.gguf import check_model_file
    from shepherd.backends.llamacpp.native.sizes import model_sizes
    from shepherd.backends.llamacpp.vision.projector import choose_projector

    others = settings.model_copy(update=settings_of_others(settings))
    try:
        kind = kind_of(pooling_of(path))
        header = check_model_file(path)
        choice = choose_projector(path, header, others)
        trained_context = model_sizes(header, settings).trained_context
    except errors.ModelLoadError:
        return None
    return structs.replace(
        _undescribed(name, settings),
        context_size=settings.context_size or trained_context,
        vision=choice.projector is not None,
        raw_prompts=kind is ModelKind.TEXT,
        kind=kind,
    )


def settings_of_others(settings: LlamaCppSection) -> dict[str, object]:
    """Changes for models besides the default one: files of the settings are not for them."""
    changes: dict[str, object] = {"lora": [], "draft_model": ""}
    if settings.projector != "none":  # "none" is no file: no model sees images
        changes["projector"] = ""  # one beside the model's own file
    return changes


def _change_time(path: Path) -> float:
    """When the file changed, as a Unix time."""
    try:
        return path.stat().st_mtime
    except OSError:  # removed in the meantime
        return 0.0


class CatalogEntry(Struct, frozen=True):
    """A model that can be opened, and what is known of it without loading it."""

    info: ModelInfo
    model: OpenableModel
    size: int = 0


class Catalog:
    """The models that requests may name; `entries` has them by name, as of the last `refresh`."""

    def __init__(
        self,
        config: Config,
        providers: ProviderBook,
        opener: BackendOpener,
        memory: MachineMemory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.entries: dict[str, CatalogEntry] = {}
        self._clock = clock
        config = memory.with_cache(config)
        self._config = config
        self._providers = providers
        self._opener = opener
        self.memory = memory
        keep_alive = config.server.keep_alive
        self._keep_alive = durations.parse_duration(keep_alive or KEEP_ALIVE)
        self._default_keep_alive = self._keep_alive if keep_alive else durations.FOREVER
        self._by_provider: dict[str, CatalogEntry] = {}
        self._folder = ModelFolder(config.llamacpp)
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")  # by the clock

    async def refresh(self) -> None:
        """Look for models, unless that was done in the last seconds."""
        if self._clock() - self._refreshed_at < SCAN_SECONDS:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)  # others may wait for the same look

    async def find(self, name: str) -> OpenableModel | None:
        """The model of that name: `NAME`, `NAME/MODEL`, or a file with or without its suffix."""
        model = self._find(name)
        if model is None:
            await self.refresh()
            model = self._find(name)
        return model

    def entry(self, name: str) -> CatalogEntry | None:
        """The model of that name or provider, as of the last `refresh`."""
        entry = self.entries.get(name) or self.entries.get(name.removesuffix(SUFFIX))
        return entry or self._by_provider.get(name)

    def default(self) -> OpenableModel:
        """The model of the settings; blocks to read them. Raises ConfigError."""
        config, model = self._config, self._config.model
        opening = partial(self._open, config)
        if not model.provider:
            key, measure = self._local_key()
            return OpenableModel(key, measure, opening, self._default_keep_alive, essential=True)
        provider = self._providers.pick(model.provider)
        # with a fallback it is not the model that a request names by the provider's label
        key = "" if model.fallback else provider.label
        # a connection takes no memory that would be worth opening it again
        keep_alive = self._default_keep_alive if provider.is_local else durations.FOREVER
        return OpenableModel(key, self._measure(provider), opening, keep_alive, essential=True)

    @property
    def default_info(self) -> ModelInfo:
        """What the settings say of their model, until it is loaded."""
        model = self._config.model
        return ModelInfo(model.provider or Path(model.label).stem, "", 0)

    async def _refresh(self) -> None:
        """Look for models; of two with one name, a provider's label wins over a file."""
        files, self._by_provider = await asyncio.to_thread(self._look)
        by_label = {entry.info.id: entry for entry in self._by_provider.values()}
        self.entries = files | by_label
        self._refreshed_at = self._clock()

    def _find(self, name: str) -> OpenableModel | None:
        """The model of that name as of the last look, also one that no list of a provider has."""
        entry = self.entry(name)
        if entry is not None:
            return entry.model
        provider, _, model = name.partition("/")
        entry = self._by_provider.get(provider)
        if entry is None:
            return None
        is_local = entry.model.measure is not None  # only the settings choose its file
        if is_local or not _MODEL.fullmatch(model) or len(model) > _MAX_NAME:
            return None
        return self._openable(name, measure=None, config=with_provider(self._config, name))

    def _look(self) -> tuple[dict[str, CatalogEntry], dict[str, CatalogEntry]]:
        """The models of files by name, and the providers by theirs."""
        files = {name: self._file_entry(file) for name, file in self._folder.look().items()}
        return files, self._provider_entries()

    def _file_entry(self, file: ServedFile) -> CatalogEntry:
        """The entry of a local model, which the settings of its own choose by its path."""
        name = BUILTIN_NAME if file.info.id == BUILTIN_NAME else str(file.path)
        config = with_provider(self._config, "", name)
        measure = partial(self.memory.needs, file.path, config.llamacpp)
        model = self._openable(str(file.path.resolve()), measure, config)
        return CatalogEntry(file.info, model, file.size)

    def _provider_entries(self) -> dict[str, CatalogEntry]:
        """The providers by name; a file that can't be read leaves the models of files."""
        try:
            providers = self._providers.all()
        except errors.ConfigError as error:
            logger.warning("The providers can't be read: %s", error)
            return {}
        usable = [provider for provider in providers if not missing_type(provider)]
        return {provider.name: self._provider_entry(provider) for provider in usable}

    def _provider_entry(self, provider: Provider) -> CatalogEntry:
        """The entry of a provider's own model; a local one needs no label beside its name."""
        try:
            facts = self._providers.facts(provider)
            context, vision = facts.context, facts.vision
        except errors.ConfigError:  # opening the provider reports it
            context, vision = 0, None
        name = provider.name if provider.is_local else provider.label
        info = ModelInfo(name, provider.type, context, provider.name, vision=vision)
        config = with_provider(self._config, provider.name)
        return CatalogEntry(info, self._openable(provider.label, self._measure(provider), config))

    def _measure(self, provider: Provider) -> Callable[[], Memory] | None:
        """What tells the memory of a provider's model, None for one elsewhere."""
        if not provider.is_local:
            return None
        path = Path(provider.model).expanduser()
        if not path.is_absolute():  # a name, whose file is found when it is opened
            return Memory
        settings = self._config.llamacpp
        context_size = provider.context_size or settings.context_size
        settings = settings.model_copy(update={"context_size": context_size})
        return partial(self.memory.needs, path, settings)

    def _openable(
        self, key: str, measure: Callable[[], Memory] | None, config: Config
    ) -> OpenableModel:
        """A model besides the default one: adapters, projector and draft model are not for it."""
        model = config.model.model_copy(update={"fallback": False})
        engine = config.llamacpp.model_copy(update=settings_of_others(config.llamacpp))
        config = config.model_copy(update={"model": model, "llamacpp": engine})
        return OpenableModel(key, measure, partial(self._open, config), self._keep_alive)

    async def _open(self, config: Config) -> Backend:
        """The backend of these settings; a request gets a mistake in them as a failure to load."""
        try:
            return await self._opener(config)
        except errors.ConfigError as error:
            raise errors.ModelLoadError(str(error)) from error

    def _local_key(self) -> tuple[str, Callable[[], Memory]]:
        """The key of the local model of the settings, and how much memory it takes."""
        settings = self._config.llamacpp
        name, directory = self._config.model.name, settings.models_path
        is_builtin = name == BUILTIN_NAME
        try:
            path = builtin_model() if is_builtin else locate_model(name, directory, directory)
        except errors.ModelLoadError:  # a script, or opening it reports it
            return name, Memory
        return str(path.resolve()), partial(self.memory.needs, path, settings)
