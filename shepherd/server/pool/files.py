"""The models of this machine that requests may name, from the headers of their files."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.backends.device_memory import Memory
from shepherd.catalog.model_files import ModelFile, model_name, models_in
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model

_MIB = 1024**2

HEADER_SECONDS = 1.0
"""The time for headers of new files in one look; the others follow in the next ones."""

_Header: TypeAlias = tuple[ModelFile, float]
"""A file and when it changed, as a Unix time."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A model's file, and what its header tells."""

    path: Path
    size: int
    info: ModelInfo


class ModelFolder:
    """The built-in model, and the models directory; files that can't be loaded are left out."""

    def __init__(self, settings: LlamaCppSection) -> None:
        self._settings = settings
        self._contexts: dict[_Header, _Facts | None] = {}

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
            if header not in self._contexts and time.monotonic() < until:
                self._contexts[header] = _facts(header[0].path, self._settings)
        self._contexts = {h: c for h, c in self._contexts.items() if h in headers.values()}
        return {
            name: ServedFile(file.path, file.size, self._info(name, facts))
            for name, (file, changed) in headers.items()
            if (facts := self._contexts.get((file, changed), _UNKNOWN)) is not None
        }

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


@dataclass(frozen=True, slots=True)
class _Facts:
    """The context that a model was trained with, in tokens, what it makes, and if it sees."""

    context: int = 0
    kind: ModelKind = ModelKind.TEXT
    sees: bool = False


_UNKNOWN = _Facts()


def _facts(path: Path, settings: LlamaCppSection) -> _Facts | None:
    """What the header of a file tells; None if the file is damaged."""
    from shepherd.backends.llamacpp.embedding.pooling import kind_of, pooling_of
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
