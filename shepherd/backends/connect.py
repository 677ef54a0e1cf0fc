"""Connecting to a provider's API."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shepherd.backends.api.adapter import ModelTraits, Wire
from shepherd.backends.api.adapters import base_url_for, wire_for
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import ApiClient, ClientOptions
from shepherd.backends.api.http.endpoint import Endpoint
from shepherd.backends.api.http.rate import RateLimits
from shepherd.backends.api.http.retry import RetryPolicy
from shepherd.backends.api.window import Window, list_models
from shepherd.config.modeldb import ModelFacts
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import Provider
from shepherd.config.vendors import vendor_of
from shepherd.errors import ConfigError, InvalidRequestError


@dataclass(frozen=True, slots=True)
class Examination:
    """What a provider says of itself.

    `problem` says why there is no `model`, "" if there is one.
    """

    models: Sequence[str]
    model: str = ""
    window: Window = field(default_factory=Window)
    problem: str = ""


async def connect(provider: Provider, book: ProviderBook) -> ApiBackend:
    """Ask the provider what it knows of its model and be ready to talk to it.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError.
    """
    limits = RateLimits(provider.requests_per_minute, provider.tokens_per_minute)
    return await _connect(provider, book, ClientOptions(limits=limits))


async def examine(provider: Provider, book: ProviderBook) -> Examination:
    """Ask the provider for its models and its context size, once and without trying again.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError.
    """
    options = ClientOptions(retry=RetryPolicy(tries=1))
    models = await _models(provider, book, options)
    try:
        backend = await _connect(provider, book, options)
    except InvalidRequestError as error:
        return Examination(models, problem=str(error))
    await backend.aclose()
    return Examination(models, backend.info.id, backend.window)


async def _models(provider: Provider, book: ProviderBook, options: ClientOptions) -> Sequence[str]:
    wire = _wire(provider)
    client = ApiClient(endpoint_of(provider, book), wire, options)
    try:
        return sorted(entry.id for entry in await list_models(client, wire))
    finally:
        await client.aclose()


async def _connect(provider: Provider, book: ProviderBook, options: ClientOptions) -> ApiBackend:
    facts = book.facts(provider)
    return await ApiBackend.connect(
        endpoint_of(provider, book),
        _wire(provider),
        replace(_traits(facts), effort=provider.effort, output_setting=provider.output_limit),
        context_size=provider.context_size,
        traits_source=facts.context_source,
        options=options,
    )


def endpoint_of(provider: Provider, book: ProviderBook) -> Endpoint:
    """Where the provider is, with its key; raises ConfigError."""
    key = book.key(provider).value.strip()
    for what, value in {"API key": key, **provider.headers}.items():
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"The {what} of provider {provider.name} has a line break or another character "
                "that no request can carry: set it anew."
            )
    return Endpoint(
        base_url=address_of(provider),
        api_key=key,
        headers=provider.headers,
        name=provider.name,
        http2=vendor_of(provider) is not None,
        stored=book.is_stored(provider),
    )


def address_of(provider: Provider) -> str:
    """The provider's base URL, the type's own if it has none; raises ConfigError."""
    return base_url_for(provider.type, provider.base_url, _wire(provider))


def _wire(provider: Provider) -> Wire:
    return wire_for(provider.type, provider.base_url, provider.dialect, provider.model)


def _traits(facts: ModelFacts) -> ModelTraits:
    return ModelTraits(
        id=facts.id,
        context_size=facts.context,
        output_limit=facts.output,
        thinking=facts.thinking,
        vision=facts.vision,
        limit_parameter=facts.limit_parameter,
    )
