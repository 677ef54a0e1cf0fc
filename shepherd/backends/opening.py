"""Opens the backend that the settings choose: a model in this process, or a provider."""

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shepherd.backends.base import ONE, Backend, Concurrency
from shepherd.backends.failover import Candidate, FallbackBackend
from shepherd.backends.output.filter import add_notations
from shepherd.backends.script import load_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.catalog.model_files import locate_model
from shepherd.config.paths import Paths
from shepherd.config.provider import PROVIDER_TYPES, Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.section import Effort
from shepherd.config.settings import Config, LayerName
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.plugins import Group, Plugins
from shepherd.prices import read_prices

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.embedding_engine import Pooling


logger = logging.getLogger(__name__)

SCRIPT_PREFIX = "script:"
"""`script:FILE` as a model's name plays a script."""

_BUILTIN = ("", BUILTIN_NAME)
"""The names of the model that comes with Shepherd."""


async def open_backend(
    config: Config, *, parallel: Concurrency = ONE, providers: ProviderBook | None = None
) -> Backend:
    """Load the configured model, or connect to the configured provider.

    `parallel` is the default if the settings don't set it; `providers` are the user's by default.
    Raises ModelLoadError if a model can't be loaded, and ConfigError for a bad setting. Raises
    AccessError, UnreachableError and InvalidRequestError for a provider that does not answer
    properly.
    """
    plugins = Plugins(config.plugins.disabled, config.plugins.settings)
    if plugins.of(Group.FORMATS):
        await asyncio.to_thread(plugins.use, Group.FORMATS, add_notations, logger.info)
    if not config.model.provider:
        return await open_local(config, parallel=parallel)
    book = providers or ProviderBook.from_env(os.environ)
    chosen = book.pick(config.model.provider)
    if not config.model.fallback:
        return await open_provider(chosen, book, config, parallel=parallel)

    opening = partial(open_provider, book=book, config=config, parallel=parallel)
    order = [chosen, *(other for other in book.all() if other.name != chosen.name)]
    candidates = [Candidate(each.label, partial(opening, each)) for each in order]
    return await FallbackBackend.open(candidates)


async def open_provider(
    provider: Provider, book: ProviderBook, config: Config, *, parallel: Concurrency = ONE
) -> Backend:
    """Connect to the provider, or load its model.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError, ModelLoadError.
    """
    if config.source("llamacpp.context_size").layer is LayerName.FLAG:
        # The command line counts more than what the provider's settings say.
        size = config.llamacpp.context_size
        provider = provider.model_copy(update={"context_size": size})
    prices = read_prices(config.terminal.prices)
    if len(provider.urls) > 1 and not provider.is_local:
        from shepherd.backends.upstreams import open_upstreams, single_opener

        if provider.type in PROVIDER_TYPES:
            return await open_upstreams(provider, single_opener(book, prices))
        # A plugin's provider with a single address is opened as below.
        return await open_upstreams(provider, partial(open_provider, book=book, config=config))
    if provider.is_local and provider.type == "tensorrt":
        from shepherd.backends.tensorrt.backend import open_tensorrt

        backend = await open_tensorrt(provider, config)
    elif provider.is_local:
        backend = await open_local(local_config(provider, config), parallel=parallel)
    else:
        from shepherd.backends.connect import connect, open_extension

        if provider.type in PROVIDER_TYPES:
            return await connect(provider, book, prices=prices)
        backend = await open_extension(provider, book, config)
    if provider.effort and isinstance(backend, ThinkingBackend):
        backend.thinking = provider.effort is not Effort.NONE  # templates know only yes and no
    return backend


@runtime_checkable
class ThinkingBackend(Protocol):
    """A backend with a setting for all sessions whether its model reasons."""

    thinking: bool | None


def local_config(provider: Provider, config: Config) -> Config:
    """The settings with which a provider's GGUF file runs in this process."""
    model = config.model.model_copy(update={"name": provider.model or "pup", "provider": ""})
    size = provider.context_size or config.llamacpp.context_size
    engine = config.llamacpp.model_copy(update={"context_size": size})
    return config.model_copy(update={"model": model, "llamacpp": engine})


async def open_local(config: Config, *, parallel: Concurrency = ONE) -> Backend:
    """Load the model in the settings; `parallel` is the default if they don't set it.

    Raises ModelLoadError if the model can't be found or loaded, ConfigError for a bad setting.
    """
    name = config.model.name
    if name.startswith(SCRIPT_PREFIX):
        return await asyncio.to_thread(_open_script, name)
    path, pooling = await asyncio.to_thread(_find_model, name, config.llamacpp.models_path)
    from shepherd.backends.llamacpp import LlamaCppBackend

    if pooling is not None:
        from shepherd.backends.llamacpp.embedding_backend import LlamaEmbeddingBackend

        return await LlamaEmbeddingBackend.load(path, config.llamacpp, pooling, name=path.stem)
    saves = config.terminal.save_sessions  # who can read the cache can read the conversations
    return await LlamaCppBackend.load(
        path,
        config.llamacpp,
        config.sampling.to_sampling(),
        parallel=config.llamacpp.parallel or parallel,
        name=BUILTIN_NAME if name in _BUILTIN else path.stem,
        cache=Paths.from_env(os.environ).conversations if saves else None,
    )


def _open_script(name: str) -> Backend:
    """Read a script by its name, such as `script:demo.txt`; raises ConfigError."""
    path = Path(name.removeprefix(SCRIPT_PREFIX)).expanduser()
    return ScriptedBackend(load_script(path), name=path.stem)


def _find_model(name: str, directory: Path) -> "tuple[Path, Pooling | None]":
    """The model's file, and how it makes vectors: None if it writes text.

    It runs in a thread, because it imports the engine and reads the disk.
    """
    from shepherd.backends.llamacpp.embedding_engine import pooling_of

    if name in _BUILTIN:
        return builtin_model(), None
    path = locate_model(name, directory, cwd=directory)
    return path, pooling_of(path)
