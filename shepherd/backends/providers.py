"""Opening the backend of a provider."""

from shepherd.backends.base import ONE, Backend, Parallel
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import Provider
from shepherd.config.settings import Config, LayerName


async def open_provider(
    provider: Provider, book: ProviderBook, config: Config, *, parallel: Parallel = ONE
) -> Backend:
    """Connect to the provider, or load its model.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError, ModelLoadError.
    """
    if config.source("llamacpp.context_size").layer is LayerName.FLAG:
        size = config.llamacpp.context_size
        provider = provider.model_copy(update={"context_size": size})
    if provider.is_local and provider.type == "tensorrt":
        from shepherd.backends.tensorrt.opening import open_tensorrt

        return await open_tensorrt(provider, config)
    if provider.is_local:
        from shepherd.backends.local import open_local

        return await open_local(local_config(provider, config), parallel=parallel)
    from shepherd.backends.connect import connect

    return await connect(provider, book)


def local_config(provider: Provider, config: Config) -> Config:
    """The settings under which a provider's GGUF file runs in this process."""
    model = config.model.model_copy(update={"name": provider.model or "pup", "provider": ""})
    size = provider.context_size or config.llamacpp.context_size
    engine = config.llamacpp.model_copy(update={"context_size": size})
    return config.model_copy(update={"model": model, "llamacpp": engine})
