"""The Ollama server of a provider, to manage its models."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from shepherd.backends.api.client import new_http
from shepherd.backends.api.ollama.host import ollama_url
from shepherd.backends.api.ollama.manage import OllamaManager
from shepherd.backends.api.ollama.wire import OllamaWire
from shepherd.backends.connect import endpoint_of
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import Provider, make_provider

OLLAMA = "ollama"
"""The type, and the name that means the server of OLLAMA_HOST if no provider has it."""


def is_stored(name: str, book: ProviderBook) -> bool:
    """Whether a provider has that name; raises ConfigError for a broken file."""
    return name in [provider.name for provider in book.all()]


def provider_called(name: str, book: ProviderBook, env: Mapping[str, str]) -> Provider:
    """The provider of that name, of whatever type; raises ConfigError."""
    if name == OLLAMA and not is_stored(name, book):
        return make_provider(name, {"type": OLLAMA, "base_url": ollama_url(env)})
    return book.pick(name)


@asynccontextmanager
async def managing(provider: Provider, book: ProviderBook) -> AsyncGenerator[OllamaManager, None]:
    """What manages the models of a provider of type `ollama`; raises ConfigError."""
    endpoint = endpoint_of(provider, book)
    headers = {**OllamaWire().auth(endpoint.api_key), **endpoint.headers}
    async with new_http(endpoint) as client:
        yield OllamaManager(client, endpoint.base_url, headers, name=provider.name)
