"""Models that run in this process."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.backends.base import ONE, Backend, Concurrency
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.models import BUILTIN_NAME, builtin_model

if TYPE_CHECKING:
    from shepherd.backends.llamacpp import LlamaCppBackend
    from shepherd.backends.llamacpp.embedding.pooling import Pooling

SCRIPT_PREFIX = "script:"
"""`script:FILE` as a model's name plays a script."""


async def open_local(config: Config, *, parallel: Concurrency = ONE) -> Backend:
    """Load the model in the settings; `parallel` is the default if they don't set it.

    Raises ModelLoadError if the model can't be found or loaded, ConfigError for a bad setting.
    """
    name = config.model.name
    if name.startswith(SCRIPT_PREFIX):
        return await asyncio.to_thread(_open_script, name)
    engine = await asyncio.to_thread(_import_llamacpp)
    if name in ("", BUILTIN_NAME):
        path, name = builtin_model(), BUILTIN_NAME
    else:
        path = await asyncio.to_thread(_locate, name, config.llamacpp.models_dir)
        name = path.stem
        pooling = await asyncio.to_thread(_pooling_of, path)
        if pooling is not None:
            return await _open_embedding_model(path, config, pooling)
    return await engine.load(
        path,
        config.llamacpp,
        config.sampling.to_sampling(),
        parallel=config.llamacpp.parallel or parallel,
        name=name,
        cache=Paths.from_env(os.environ).conversations if config.terminal.save_sessions else None,
    )


def _import_llamacpp() -> "type[LlamaCppBackend]":
    from shepherd.backends.llamacpp import LlamaCppBackend

    return LlamaCppBackend


def _pooling_of(path: Path) -> "Pooling | None":
    from shepherd.backends.llamacpp.embedding.pooling import pooling_of

    return pooling_of(path)


async def _open_embedding_model(path: Path, config: Config, pooling: "Pooling") -> Backend:
    from shepherd.backends.llamacpp.embedding.backend import LlamaEmbeddingBackend

    return await LlamaEmbeddingBackend.load(path, config.llamacpp, pooling, name=path.stem)


def _open_script(name: str) -> Backend:
    from shepherd.backends.scripted import ScriptedBackend, load_script

    path = Path(name.removeprefix(SCRIPT_PREFIX)).expanduser()
    return ScriptedBackend(load_script(path), name=path.stem)


def _locate(name: str, models_dir: str) -> Path:
    from shepherd.backends.llamacpp import locate_model

    directory = Path(models_dir).expanduser()
    return locate_model(name, directory, cwd=directory)
