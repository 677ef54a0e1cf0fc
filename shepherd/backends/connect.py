"""Connects to a provider's API, or opens the backend of a plugin."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qs, urlsplit, urlunsplit

from msgspec import Struct, field, structs

from shepherd import errors, events, messages
from shepherd.backends.api.adapter import Adapter, ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.gemini import GeminiAdapter
from shepherd.backends.api.http.client import ApiClient, ClientOptions, Endpoint
from shepherd.backends.api.http.retry import RateLimits, RetryPolicy
from shepherd.backends.api.ollama import OllamaAdapter
from shepherd.backends.api.openai import dialects, responses
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter, ShepherdChatAdapter
from shepherd.backends.api.window import Window, lacks_list, list_models
from shepherd.backends.base import Backend
from shepherd.config.provider import PROVIDER_TYPES, Provider, missing_type, vendor_of
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.plugins import Group, PluginError, Plugins
from shepherd.prices import Price, read_prices
from shepherd.session import Session

QUESTION = "Say OK."
QUESTION_TOKENS = 256
"""The question to a model without a list of models, and the length limit of the answer."""

OpenBackend: TypeAlias = Callable[[Provider, str], Awaitable[object]]
"""The type of the entry point; it gets the provider and its key, or "" without one."""


class Examination(Struct, frozen=True):
    """The provider's own data.

    `problem` says why there is no `model`, "" if there is one. If the server is not `listing` its
    models, a short question has confirmed that the model answers.
    """

    models: Sequence[str]
    model: str = ""
    window: Window = field(default_factory=Window)
    problem: str = ""
    listing: bool = True


async def connect(
    provider: Provider,
    book: ProviderBook,
    retry: RetryPolicy | None = None,
    prices: Mapping[str, Price] | None = None,
) -> ApiBackend:
    """Request the model's properties from the provider, and prepare requests to it.

    Of several addresses it takes the first. `prices` by the names of models override those that the
    provider lists. Raises ConfigError, AccessError, UnreachableError,
    InvalidRequestError.
    """
    limits = RateLimits(provider.requests_per_minute, provider.tokens_per_minute)
    options = ClientOptions(retry=retry or RetryPolicy(), limits=limits)
    backend = await _connect(provider, book, options)
    backend.use_prices(prices or {})
    return backend


async def examine(provider: Provider, book: ProviderBook) -> Examination:
    """Request the provider's models and the context size, once and without retries.

    If the server has no list of models, the model gets a short question instead. Raises
    ConfigError, AccessError, UnreachableError, InvalidRequestError.
    """
    if provider.type not in PROVIDER_TYPES:
        return await _examine_extension(provider, book)
    options = ClientOptions(retry=RetryPolicy(max_attempts=1), is_test=True)
    models = await _models(provider, book, options)
    try:
        backend = await _connect(provider, book, options)
    except errors.InvalidRequestError as error:
        return Examination(models or (), problem=str(error), listing=models is not None)
    try:
        if models is None:  # nothing has shown yet that the model exists
            question = Session(messages=[messages.Message.user(QUESTION)])
            await backend.generate_from_session(question, events.ignore_events, QUESTION_TOKENS)
    finally:
        await backend.aclose()
    return Examination(models or (), backend.info.id, backend.window, listing=models is not None)


async def check_answer(provider: Provider, book: ProviderBook) -> None:
    """Request the list of models once; a server without a list answers, too.

    Raises ConfigError, AccessError, UnreachableError, InvalidRequestError.
    """
    await _models(provider, book, ClientOptions(retry=RetryPolicy(max_attempts=1), is_test=True))


async def open_extension(provider: Provider, book: ProviderBook, config: Config) -> Backend:
    """The backend of a provider whose type comes from a plugin.

    Raises ConfigError if the plugin is missing, switched off or broken, and the plugin's own
    ShepherdError.
    """
    plugins = Plugins(config.plugins.disabled, config.plugins.settings)
    usable = (*plugins.of(Group.BACKENDS), *plugins.of(Group.ADAPTERS))
    plugin = next((plugin for plugin in usable if plugin.name == provider.type), None)
    if plugin is None:
        raise errors.ConfigError(
            missing_type(provider)
            or f"Provider {provider.name}: plugins.disabled names the plugin of its type "
            f"{provider.type}."
        )
    loaded: Any = await asyncio.to_thread(plugins.load, plugin)
    if plugin.group is Group.ADAPTERS:
        with plugin.guarding(errors.ShepherdError):
            adapter: object = loaded()
        if not isinstance(adapter, Adapter):
            raise PluginError(f"The plugin {plugin} can't be used: it did not return an adapter")
        limits = RateLimits(provider.requests_per_minute, provider.tokens_per_minute)
        backend = await _connect(provider, book, ClientOptions(limits=limits), adapter)
        backend.use_prices(read_prices(config.terminal.prices))
        return backend
    open_backend = cast(OpenBackend, loaded)
    with plugin.guarding(errors.ShepherdError):
        backend = await open_backend(provider, book.key(provider).value)
    if not isinstance(backend, Backend):
        raise PluginError(f"The plugin {plugin} can't be used: it did not return a backend")
    return backend


async def _examine_extension(provider: Provider, book: ProviderBook) -> Examination:
    """What a plugin's backend says about its one model."""
    backend = await open_extension(provider, book, Config())
    try:
        info = backend.info
        return Examination([info.id], info.id, Window(info.context_size, source="the plugin"))
    finally:
        await backend.aclose()


async def _models(
    provider: Provider, book: ProviderBook, options: ClientOptions
) -> Sequence[str] | None:
    """The models that the provider lists; None if it has no list for this key."""
    adapter = _adapter(provider)
    client = ApiClient(endpoint_of(provider, book), adapter, options)
    try:
        return sorted(entry.id for entry in await list_models(client, adapter))
    except (errors.InvalidRequestError, errors.AccessError) as error:
        if not lacks_list(error):  # the key is wrong
            raise
        return None
    finally:
        await client.aclose()


async def _connect(
    provider: Provider, book: ProviderBook, options: ClientOptions, adapter: Adapter | None = None
) -> ApiBackend:
    """As `connect`, with these options; a setting counts more than what is known of the model.

    A plugin's `adapter` also knows the address where the provider names none.
    """
    facts, endpoint = book.facts(provider), endpoint_of(provider, book)
    if adapter is not None and not provider.urls:
        if not adapter.default_base_url:
            raise errors.ConfigError(f"Provider {provider.name} needs the address of its server.")
        endpoint = structs.replace(endpoint, base_url=adapter.default_base_url)
    return await ApiBackend.connect(
        endpoint,
        adapter or _adapter(provider),
        ModelTraits(
            id=facts.id,
            context_size=facts.context,
            output_limit=facts.output,
            thinking=facts.thinking,
            vision=facts.vision,
            limit_parameter=facts.limit_parameter,
            effort=provider.effort,
            output_setting=provider.output_limit,
        ),
        context_size=provider.context_size,
        traits_source=facts.context_source,
        options=options,
    )


def endpoint_of(provider: Provider, book: ProviderBook) -> Endpoint:
    """The provider's address, with its key; raises ConfigError."""
    key = book.key(provider).value.strip()
    for what, value in {"API key": key, **provider.headers}.items():
        if not (value.isascii() and value.isprintable()):
            raise errors.ConfigError(
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
    """The provider's base URL, or the default of its type; the first of several.

    Raises ConfigError.
    """
    url = next(iter(provider.urls), "")
    if provider.type not in PROVIDER_TYPES:
        return url or f"https://{provider.type}.plugin"
    return base_url_for(provider.type, url, _adapter(provider))


def far_address(provider: Provider) -> str:
    """The base URL of a provider that is not on this machine or network, else "".

    Raises ConfigError.
    """
    if provider.is_local:
        return ""
    address = address_of(provider)
    return "" if Endpoint(address).is_near else address


def _adapter(provider: Provider) -> Adapter:
    """The adapter of the provider's type; raises ConfigError."""
    url = next(iter(provider.urls), "")
    return adapter_for(provider.type, url, provider.dialect, provider.model)


_OPENAI_TYPES = ("openai", "openai-responses", "shepherd", "tensorrt")
_VERSIONS = {"anthropic": ("/v1",), "gemini": ("/v1beta", "/v1"), "ollama": ("/v1", "/api")}
"""Suffixes that users add to the address, although the adapter's own paths begin with them."""


def adapter_for(type: str, base_url: str = "", dialect: str = "", model: str = "") -> Adapter:
    """The adapter of a provider's type.

    `dialect`, `strict` or `extended`, overrides the known dialect of the server at `base_url`.
    OpenAI's own models that need the responses API (see `needs_responses`) get it automatically.
    Raises ConfigError for a type without an adapter.
    """
    if type in _OPENAI_TYPES:
        return _openai(type, base_url, dialect, model)
    if type == "anthropic":
        host = urlsplit(base_url).hostname or "api.anthropic.com"
        # With the dots, only Anthropic's own domains count, and not those that end alike.
        is_claude = "claude" in model.lower() or f".{host}".endswith(".anthropic.com")
        return AnthropicAdapter(claude=is_claude)
    if type == "gemini":
        return GeminiAdapter()
    if type == "ollama":
        return OllamaAdapter()
    raise errors.ConfigError(f"Providers of type {type} have no API.")


def base_url_for(type: str, address: str, adapter: Adapter) -> str:
    """The base URL of the adapter's paths, from the user's address ("" = the default one).

    `/v1` is added or removed, depending on the type. A query, which Azure uses, is dropped. The
    path of one of the type's own endpoints is dropped too. Raises ConfigError for an endpoint of
    another type, and if only the user can know the address.
    """
    if type in ("shepherd", "tensorrt") and not address:
        raise errors.ConfigError(
            f"Providers of type {type} need the address of their server: --base-url "
            "http://HOST:8000/v1"
            + (" (start it with `trtllm-serve MODEL`)" if type == "tensorrt" else "")
        )
    parts = urlsplit(address or adapter.default_base_url)
    path = _without_endpoint(type, parts.path.rstrip("/"), address)
    if type in _OPENAI_TYPES:
        path = path or "/v1"
    for suffix in _VERSIONS.get(type, ()):
        path = path.removesuffix(suffix)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


_ENDPOINTS = {
    "anthropic": re.compile(r"(?:/v\d+)?/messages(?:/count_tokens)?$", re.IGNORECASE),
    "gemini": re.compile(r"/(?:tuned)?models/[^/]+:\w+$", re.IGNORECASE),
    "ollama": re.compile(r"/api/(?:chat|generate|tags|show|ps|pull|version|embed)$", re.IGNORECASE),
    "openai": re.compile(r"/(?:chat/completions|responses|embeddings)$", re.IGNORECASE),
}
"""Paths of requests, which documentation often gives in the place of a base URL."""

_SHARED_ENDPOINTS = re.compile(r"(/v1(?:beta)?)/(?:chat|completions|models)$", re.IGNORECASE)
"""Paths that several APIs share, or that are part of an endpoint's path."""


def _without_endpoint(type: str, path: str, url: str) -> str:
    """The path without that of an endpoint; raises ConfigError for another type's endpoint."""
    own_api = "openai" if type in _OPENAI_TYPES else type
    for api, endpoint in _ENDPOINTS.items():
        match = endpoint.search(path)
        if match is None:
            continue
        if api == own_api:
            return path[: match.start()]
        raise errors.ConfigError(
            f"{url} is an endpoint of type {api}, and the provider is of type {type}: correct "
            f"the type, or give the base URL that a server of type {type} has."
        )
    return _SHARED_ENDPOINTS.sub(r"\1", path)


def _openai(type: str, base_url: str, dialect: str, model: str) -> Adapter:
    """The adapter of a server that speaks OpenAI's API, in its dialect.

    The `dialect` of the settings counts most, then the type, then the server's known dialect.
    """
    named = {
        "strict": dialects.PLAIN,
        "extended": dialects.EXTENDED,
        "shepherd": dialects.EXTENDED,
        "tensorrt": dialects.TENSORRT,
    }
    known = dialects.dialect_of(base_url) if base_url else dialects.OPENAI
    chosen = named.get(dialect) or named.get(type) or known
    query = parse_qs(urlsplit(base_url).query)
    version = query.get("api-version", [""])[0]  # Azure's
    needs_responses = chosen is dialects.OPENAI and dialects.needs_responses(model)
    if type == "openai-responses" or needs_responses:
        return responses.OpenAIResponsesAdapter(chosen, version)
    adapter = ShepherdChatAdapter if type == "shepherd" else OpenAIChatAdapter
    return adapter(chosen, version)
