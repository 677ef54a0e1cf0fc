"""Finds the models that requests name: files of the models directory, and providers."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.base import Backend, Memory, ModelInfo, ModelKind
from shepherd.catalog.model_files import SUFFIX, ModelFile, model_name, models_in
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.provider import Provider, missing_type
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import with_provider
from shepherd.conversation.model_slot import BackendOpener
from shepherd.durations import parse_duration
from shepherd.errors import ConfigError, ModelLoadError
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model
from shepherd.server.pool.loaded import OpenableModel

logger = logging.getLogger(__name__)

SCAN_SECONDS = 2.0
"""Directories and files of settings are not read again sooner."""

_MODEL = re.compile(r"[A-Za-z0-9@][\w.:@+-]*(?:/[A-Za-z0-9@][\w.:@+-]*)*", re.ASCII)
"""Names of a provider's models; others could change the address of a request."""

_MAX_NAME = 200

_MIB = 1024**2

HEADER_SECONDS = 1.0
"""The time for headers of new files in one look; the others follow in the next ones."""

_Header: TypeAlias = tuple[ModelFile, float]
"""A file and when it changed, as a Unix time."""


class ServedFile(Struct, frozen=True):
    """A model's file, and what its header tells."""

    path: Path
    size: int
    info: ModelInfo


class ModelFolder:
    """The built-in model, and the models directory; files that can't be loaded are left out."""

    def __init__(self, settings: LlamaCppSection) -> None:
        self._settings = settings
        self._facts: dict[_Header, _Facts | None] = {}

    def look(self) -> Mapping[str, ServedFile]:
        """The models by their paths in the directory, without suffix; reads new headers."""
        directory = Path(self._settings.models_dir).expanduser()
        builtin = builtin_model()
        files = {BUILTIN_NAME: ModelFile(builtin, builtin.stat().st_size)}
        for file in models_in(directory):
            relative = file.path.relative_to(directory)
            files.setdefault(str(relative.with_name(model_name(relative.name))), file)
        headers = {name: (file, _changed(file.path)) for name, file in files.items()}
        until = time.monotonic() + HEADER_SECONDS
        for header in headers.values():
            if header not in self._facts and time.monotonic() < until:
                self._facts[header] = _facts(header[0].path, self._settings)
        current = set(headers.values())
        self._facts = {header: self._facts[header] for header in current & self._facts.keys()}
        served: dict[str, ServedFile] = {}
        for name, header in headers.items():
            facts = self._facts.get(header, _UNKNOWN)  # its header is read in a later look
            if facts is not None:  # None: damaged
                file, _ = header
                served[name] = ServedFile(file.path, file.size, self._info(name, facts))
        return served

    def _info(self, name: str, facts: "_Facts") -> ModelInfo:
        size = self._settings.context_size or facts.context
        writes = facts.kind is ModelKind.TEXT
        info = ModelInfo(
            name, "llamacpp", size, vision=facts.sees, raw_prompts=writes, kind=facts.kind
        )
        return replace(info, trained_tools=BUILTIN_TOOLS) if name == BUILTIN_NAME else info


class MachineMemory:
    """The memory of this machine for models, without what other programs use.

    That of GPUs is measured when it is first needed: a server of providers loads no llama.cpp.
    """

    def __init__(self, settings: LlamaCppSection, models_mib: int = 0) -> None:
        """Measures the CPU's memory, unless `models_mib` limits it."""
        from shepherd.backends.llamacpp.native.devices import available_memory

        self._settings = settings
        self._free = available_memory()
        self._limit = models_mib * _MIB or self._free

    @cached_property
    def _vram(self) -> int:
        from shepherd.backends.llamacpp.native.fitting import free_memory, model_gpus

        return free_memory(model_gpus(self._settings)).vram

    def limit(self) -> Memory:
        """The limit for all models together; that of GPUs is 0 without any. Blocks."""
        return Memory(self._limit, self._vram)

    def needs(self, path: Path, settings: LlamaCppSection) -> Memory:
        """About what a model takes when no other model is loaded; blocks.

        Raises ModelLoadError for a damaged file.
        """
        from shepherd.backends.llamacpp.native.fitting import fit_model
        from shepherd.backends.llamacpp.native.gguf import check_model_file
        from shepherd.backends.llamacpp.vision.projector import projector_bytes

        limit = Memory(self._free, self._vram)
        header = check_model_file(path)
        fit = fit_model(header, settings, limit=limit)
        size = projector_bytes(path, header, settings)
        return fit.memory + (Memory(vram=size) if fit.demand.gpus else Memory(ram=size))


class _Facts(Struct, frozen=True):
    """The context that a model was trained with, in tokens, what it makes, and if it sees."""

    context: int = 0
    kind: ModelKind = ModelKind.TEXT
    sees: bool = False


_UNKNOWN = _Facts()


def _facts(path: Path, settings: LlamaCppSection) -> _Facts | None:
    """What the header of a file tells; None if the file is damaged."""
    from shepherd.backends.llamacpp.embedding_engine import kind_of, pooling_of
    from shepherd.backends.llamacpp.native.gguf import check_model_file, summarise
    from shepherd.backends.llamacpp.vision.projector import choose_projector

    own = settings.model_copy(update=settings_of_others(settings))
    try:
        kind = kind_of(pooling_of(path))
        choice = choose_projector(path, check_model_file(path), own)
        return _Facts(summarise(path).context, kind, choice.projector is not None)
    except ModelLoadError:
        return None


def settings_of_others(settings: LlamaCppSection) -> dict[str, object]:
    """Changes for models besides the default one: files of the settings are not for them."""
    changes: dict[str, object] = {"lora": [], "draft_model": ""}
    if settings.projector != "none":
        changes["projector"] = ""
    return changes


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed in the meantime
        return 0.0


class Entry(Struct, frozen=True):
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
        self._clock = clock
        self.entries: dict[str, Entry] = {}
        self._config = config
        self._providers = providers
        self._opener = opener
        self.memory = memory
        self._keep_alive = parse_duration(config.server.keep_alive)
        self._provided: dict[str, Entry] = {}
        self._folder = ModelFolder(config.llamacpp)
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = float("-inf")

    async def refresh(self) -> None:
        """Look for models, unless that was done in the last seconds."""
        if self._clock() - self._refreshed < SCAN_SECONDS:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def find(self, name: str) -> OpenableModel | None:
        """The model of that name: `NAME`, `NAME/MODEL`, or a file with or without its suffix."""
        model = self._find(name)
        if model is None:
            await self.refresh()
            model = self._find(name)
        return model

    def entry(self, name: str) -> Entry | None:
        """The model of that name or provider, as of the last `refresh`."""
        entry = self.entries.get(name) or self.entries.get(name.removesuffix(SUFFIX))
        return entry or self._provided.get(name)

    def default(self) -> OpenableModel:
        """The model of the settings; blocks to read them. Raises ConfigError."""
        config, model = self._config, self._config.model
        opening = partial(self._open, config)
        if not model.provider:
            return OpenableModel(*self._local_key(), opening, essential=True)
        provider = self._providers.pick(model.provider)
        key = "" if model.fallback else provider.label
        return OpenableModel(key, self._measure(provider), opening, essential=True)

    @property
    def default_info(self) -> ModelInfo:
        """What the settings say of their model, until it is loaded."""
        model = self._config.model
        return ModelInfo(model.provider or Path(model.label).stem, "", 0)

    async def _refresh(self) -> None:
        files, self._provided = await asyncio.to_thread(self._look)
        by_label = {entry.info.id: entry for entry in self._provided.values()}
        self.entries = files | by_label
        self._refreshed = self._clock()

    def _find(self, name: str) -> OpenableModel | None:
        entry = self.entry(name)
        if entry is not None:
            return entry.model
        provider, _, model = name.partition("/")
        entry = self._provided.get(provider)
        if entry is None:
            return None
        is_local = entry.model.measure is not None  # only the settings choose its file
        if is_local or not _MODEL.fullmatch(model) or len(model) > _MAX_NAME:
            return None
        return self._openable(name, None, with_provider(self._config, name))

    def _look(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        """The models of files by name, and the providers by theirs."""
        files = {name: self._file_entry(file) for name, file in self._folder.look().items()}
        return files, self._provider_entries()

    def _file_entry(self, file: ServedFile) -> Entry:
        name = BUILTIN_NAME if file.info.id == BUILTIN_NAME else str(file.path)
        config = with_provider(self._config, "", name)
        measure = partial(self.memory.needs, file.path, config.llamacpp)
        return Entry(
            file.info, self._openable(str(file.path.resolve()), measure, config), file.size
        )

    def _provider_entries(self) -> dict[str, Entry]:
        try:
            providers = [p for p in self._providers.all() if not missing_type(p)]
        except ConfigError as error:
            logger.warning("The providers can't be read: %s", error)
            return {}
        return {provider.name: self._provider_entry(provider) for provider in providers}

    def _provider_entry(self, provider: Provider) -> Entry:
        try:
            facts = self._providers.facts(provider)
            context, vision = facts.context, facts.vision
        except ConfigError:  # opening the provider reports it
            context, vision = 0, None
        name = provider.name if provider.is_local else provider.label
        info = ModelInfo(name, provider.type, context, provider.name, vision=vision)
        config = with_provider(self._config, provider.name)
        return Entry(info, self._openable(provider.label, self._measure(provider), config))

    def _measure(self, provider: Provider) -> Callable[[], Memory] | None:
        if not provider.is_local:
            return None
        path = Path(provider.model).expanduser()
        settings = self._config.llamacpp
        size = provider.context_size or settings.context_size
        settings = settings.model_copy(update={"context_size": size})
        return partial(self.memory.needs, path, settings) if path.is_absolute() else Memory

    def _openable(
        self, key: str, measure: Callable[[], Memory] | None, config: Config
    ) -> OpenableModel:
        """A model besides the default one: adapters, projector and draft model are not for it."""
        model = config.model.model_copy(update={"fallback": False})
        engine = config.llamacpp.model_copy(update=settings_of_others(config.llamacpp))
        config = config.model_copy(update={"model": model, "llamacpp": engine})
        return OpenableModel(key, measure, partial(self._open, config), self._keep_alive)

    async def _open(self, config: Config) -> Backend:
        try:
            return await self._opener(config)
        except ConfigError as error:
            raise ModelLoadError(str(error)) from error

    def _local_key(self) -> tuple[str, Callable[[], Memory]]:
        """The key of the local model of the settings, and how much memory it takes."""
        from shepherd.backends.llamacpp import locate_model

        settings = self._config.llamacpp
        name, directory = self._config.model.name, Path(settings.models_dir).expanduser()
        is_builtin = name == BUILTIN_NAME
        try:
            path = builtin_model() if is_builtin else locate_model(name, directory, directory)
        except ModelLoadError:  # a script, or opening it reports it
            return name, Memory
        return str(path.resolve()), partial(self.memory.needs, path, settings)
