"""Opens the backend of a provider."""

from functools import partial
from typing import Protocol, runtime_checkable

from shepherd.backends.base import ONE, Backend, Concurrency
from shepherd.config.choices import Effort
from shepherd.config.provider import PROVIDER_TYPES, Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config, LayerName
from shepherd.prices import read_prices


@runtime_checkable
class ThinkingBackend(Protocol):
    """A backend with a setting for all sessions whether its model reasons."""

    thinking: bool | None


async def open_provider(
    provider: Provider, book: ProviderBook, config: Config, *, parallel: Concurrency = ONE
) -> Backend:
    """Connect to the provider, or load its model.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError, ModelLoadError.
    """
    if config.source("llamacpp.context_size").layer is LayerName.FLAG:
        size = config.llamacpp.context_size
        provider = provider.model_copy(update={"context_size": size})
    if len(provider.urls) > 1 and not provider.is_local:
        return await _open_upstreams(provider, book, config)
    if provider.is_local and provider.type == "tensorrt":
        from shepherd.backends.tensorrt.backend import open_tensorrt

        return _thinking(await open_tensorrt(provider, config), provider)
    if provider.is_local:
        from shepherd.backends.local import open_local

        backend = await open_local(local_config(provider, config), parallel=parallel)
        return _thinking(backend, provider)
    if provider.type not in PROVIDER_TYPES:
        from shepherd.backends.extension import open_extension

        return _thinking(await open_extension(provider, book, config), provider)
    from shepherd.backends.connect import connect

    return await connect(provider, book, prices=read_prices(config.terminal.prices))


async def _open_upstreams(provider: Provider, book: ProviderBook, config: Config) -> Backend:
    from shepherd.backends.upstreams.backend import open_upstreams, single_opener

    if provider.type in PROVIDER_TYPES:
        return await open_upstreams(
            provider, single_opener(book, read_prices(config.terminal.prices))
        )
    return await open_upstreams(provider, partial(open_provider, book=book, config=config))


def _thinking(backend: Backend, provider: Provider) -> Backend:
    """The backend, with reasoning set by the provider's effort; templates know only yes and no."""
    if provider.effort and isinstance(backend, ThinkingBackend):
        backend.thinking = provider.effort is not Effort.NONE
    return backend


def local_config(provider: Provider, config: Config) -> Config:
    """The settings with which a provider's GGUF file runs in this process."""
    model = config.model.model_copy(update={"name": provider.model or "pup", "provider": ""})
    size = provider.context_size or config.llamacpp.context_size
    engine = config.llamacpp.model_copy(update={"context_size": size})
    return config.model_copy(update={"model": model, "llamacpp": engine})
