"""The models of this machine that requests may name, from the headers of their files."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.catalog.model_files import ModelFile, model_name, models_in
from shepherd.config.sections import LlamaCppSection
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model

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
                self._contexts[header] = _facts(header[0].path)
        self._contexts = {h: c for h, c in self._contexts.items() if h in headers.values()}
        return {
            name: ServedFile(file.path, file.size, self._info(name, facts))
            for name, (file, changed) in headers.items()
            if (facts := self._contexts.get((file, changed), _UNKNOWN)) is not None
        }

    def _info(self, name: str, facts: "_Facts") -> ModelInfo:
        size = self._settings.context_size or facts.context
        writes = facts.kind is ModelKind.TEXT
        info = ModelInfo(name, "llamacpp", size, vision=False, raw_prompts=writes, kind=facts.kind)
        return replace(info, trained_tools=BUILTIN_TOOLS) if name == BUILTIN_NAME else info


def memory_needs(path: Path, context_size: int) -> int:
    """About how many bytes a model takes: its files, and a context in f16.

    `context_size` 0 is the model's own. Raises ModelLoadError for a damaged file.
    """
    from shepherd.backends.llamacpp.native.summary import summarise

    summary = summarise(path)
    return summary.needs(context_size or summary.context)


@dataclass(frozen=True, slots=True)
class _Facts:
    """The context that a model was trained with, in tokens, and what it makes."""

    context: int = 0
    kind: ModelKind = ModelKind.TEXT


_UNKNOWN = _Facts()


def _facts(path: Path) -> _Facts | None:
    """What the header of a file tells; None if the file is damaged."""
    from shepherd.backends.llamacpp.embedding.kind import kind_of, pooling_of
    from shepherd.backends.llamacpp.native.summary import summarise

    try:
        return _Facts(summarise(path).context, kind_of(pooling_of(path)))
    except ModelLoadError:
        return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed in the meantime
        return 0.0
