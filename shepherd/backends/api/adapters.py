"""Which wire speaks to a provider; each is loaded when it is chosen."""

from urllib.parse import parse_qs, urlsplit, urlunsplit

from shepherd.backends.api.adapter import Wire
from shepherd.errors import ConfigError

_OPENAI_TYPES = ("openai", "openai-responses", "shepherd", "tensorrt")
_VERSIONS = {"anthropic": ("/v1",), "gemini": ("/v1beta", "/v1"), "ollama": ("/v1", "/api")}
"""What users write behind the address although the wire's own paths begin with it."""


def wire_for(type: str, base_url: str = "", dialect: str = "", model: str = "") -> Wire:
    """The wire of a provider's type.

    `dialect`, `strict` or `extended`, goes before what is known of the server at `base_url`.
    OpenAI's own models that need the responses API (see `needs_responses`) get it by themselves.
    Raises ConfigError for a type that has none.
    """
    if type in _OPENAI_TYPES:
        return _openai(type, base_url, dialect, model)
    if type == "anthropic":
        return _anthropic(base_url, model)
    if type == "gemini":
        from shepherd.backends.api.gemini.adapter import GeminiWire

        return GeminiWire()
    if type == "ollama":
        from shepherd.backends.api.ollama.adapter import OllamaWire

        return OllamaWire()
    raise ConfigError(f"Providers of type {type} have no API.")


def base_url_for(type: str, given: str, wire: Wire) -> str:
    """The address to which the wire's paths belong, from what the user gave ("" = the usual one).

    `/v1` is added or taken away as the type needs it; a query, which is Azure's, goes. Raises
    ConfigError where only the user knows the address.
    """
    if type in ("shepherd", "tensorrt") and not given:
        raise ConfigError(
            f"Providers of type {type} need the address of their server: --base-url "
            + ("http://HOST:8000/v1" if type == "shepherd" else _TENSORRT)
        )
    parts = urlsplit(given or wire.default_base_url)
    path = parts.path.rstrip("/")
    if type in _OPENAI_TYPES:
        path = path or "/v1"
    for suffix in _VERSIONS.get(type, ()):
        path = path.removesuffix(suffix)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


_TENSORRT = "http://HOST:8000/v1 (start it with `trtllm-serve MODEL`)"


def _anthropic(base_url: str, model: str) -> Wire:
    from shepherd.backends.api.anthropic.adapter import AnthropicWire, OtherAnthropicWire

    host = urlsplit(base_url).hostname or "api.anthropic.com"
    is_claude = "claude" in model.lower() or f".{host}".endswith(".anthropic.com")
    return AnthropicWire() if is_claude else OtherAnthropicWire()


def _openai(type: str, base_url: str, dialect: str, model: str) -> Wire:
    from shepherd.backends.api.openai import dialects
    from shepherd.backends.api.openai.chat_adapter import chat_wire
    from shepherd.backends.api.openai.models import needs_responses

    named = {
        "strict": dialects.PLAIN,
        "extended": dialects.EXTENDED,
        "shepherd": dialects.EXTENDED,
        "tensorrt": dialects.TENSORRT,
    }
    known = dialects.dialect_of(base_url) if base_url else dialects.OPENAI
    chosen = named.get(dialect) or named.get(type) or known
    version = parse_qs(urlsplit(base_url).query).get("api-version", [""])[0]
    if type == "openai-responses" or (chosen is dialects.OPENAI and needs_responses(model)):
        from shepherd.backends.api.openai.responses_adapter import (
            OpenAIResponsesWire,
            OtherResponsesWire,
        )

        kind = OpenAIResponsesWire if chosen.official else OtherResponsesWire
        return kind(chosen, version)
    return chat_wire(chosen, version)
