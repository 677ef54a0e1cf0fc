"""Connecting to a provider's API."""

from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.endpoint import Endpoint
from shepherd.backends.api.wire import ModelTraits
from shepherd.backends.api.wires import base_url_for, wire_for
from shepherd.config.modeldb import ModelFacts
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import Provider


async def connect(provider: Provider, book: ProviderBook) -> ApiBackend:
    """Ask the provider what it knows of its model and be ready to talk to it.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError.
    """
    wire = wire_for(provider.type, provider.base_url, provider.dialect)
    endpoint = Endpoint(
        base_url=base_url_for(provider.type, provider.base_url, wire),
        api_key=book.key(provider).value,
        headers=provider.headers,
        name=provider.name,
    )
    return await ApiBackend.connect(endpoint, wire, _traits(book.facts(provider)))


def _traits(facts: ModelFacts) -> ModelTraits:
    return ModelTraits(
        id=facts.id,
        context_size=facts.context,
        output_limit=facts.output,
        thinking=facts.thinking,
        vision=facts.vision,
        limit_parameter=facts.limit_parameter,
    )
