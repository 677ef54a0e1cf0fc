"""The adapter of each type of provider, and the address of its API."""

import re
from urllib.parse import parse_qs, urlsplit, urlunsplit

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.gemini.adapter import GeminiAdapter
from shepherd.backends.api.ollama.adapter import OllamaAdapter
from shepherd.backends.api.openai import dialects
from shepherd.backends.api.openai.chat_adapter import OpenAIChatAdapter, ShepherdChatAdapter
from shepherd.backends.api.openai.responses import OpenAIResponsesAdapter
from shepherd.errors import ConfigError

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
        is_claude = "claude" in model.lower() or f".{host}".endswith(".anthropic.com")
        return AnthropicAdapter(claude=is_claude)
    if type == "gemini":
        return GeminiAdapter()
    if type == "ollama":
        return OllamaAdapter()
    raise ConfigError(f"Providers of type {type} have no API.")


def base_url_for(type: str, address: str, adapter: Adapter) -> str:
    """The base URL of the adapter's paths, from the user's address ("" = the default one).

    `/v1` is added or removed, depending on the type. A query, which Azure uses, is dropped. The
    path of one of the type's own endpoints is dropped too. Raises ConfigError for an endpoint of
    another type, and if only the user can know the address.
    """
    if type in ("shepherd", "tensorrt") and not address:
        raise ConfigError(
            f"Providers of type {type} need the address of their server: --base-url "
            + ("http://HOST:8000/v1" if type == "shepherd" else _TENSORRT)
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
    own = "openai" if type in _OPENAI_TYPES else type
    for owner, endpoint in _ENDPOINTS.items():
        match = endpoint.search(path)
        if match is None:
            continue
        if owner == own:
            return path[: match.start()]
        raise ConfigError(
            f"{url} is an endpoint of type {owner}, and the provider is of type {type}: correct "
            f"the type, or give the base URL that a server of type {type} has."
        )
    return _SHARED_ENDPOINTS.sub(r"\1", path)


_TENSORRT = "http://HOST:8000/v1 (start it with `trtllm-serve MODEL`)"


def _openai(type: str, base_url: str, dialect: str, model: str) -> Adapter:
    named = {
        "strict": dialects.PLAIN,
        "extended": dialects.EXTENDED,
        "shepherd": dialects.EXTENDED,
        "tensorrt": dialects.TENSORRT,
    }
    known = dialects.dialect_of(base_url) if base_url else dialects.OPENAI
    chosen = named.get(dialect) or named.get(type) or known
    version = parse_qs(urlsplit(base_url).query).get("api-version", [""])[0]
    if type == "openai-responses" or (
        chosen is dialects.OPENAI and dialects.needs_responses(model)
    ):
        return OpenAIResponsesAdapter(chosen, version)
    kind = ShepherdChatAdapter if type == "shepherd" else OpenAIChatAdapter
    return kind(chosen, version)
