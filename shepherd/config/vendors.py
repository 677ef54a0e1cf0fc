"""Well-known services: their address, and the variable of their key."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from shepherd.config.provider import Provider, ProviderType


@dataclass(frozen=True, slots=True)
class Vendor:
    """One service; `variables` are the usual names of its key, in order of preference.

    `base_url` is "" for the type's own address. `model` is a suggestion.
    """

    name: str
    type: ProviderType
    hosts: tuple[str, ...]
    variables: tuple[str, ...]
    model: str
    base_url: str = ""


VENDORS = (
    Vendor("anthropic", "anthropic", ("anthropic.com",), ("ANTHROPIC_API_KEY",),
           "claude-sonnet-4-5"),
    Vendor("openai", "openai", ("openai.com",), ("OPENAI_API_KEY",), "gpt-5-mini"),
    Vendor("gemini", "gemini", ("googleapis.com",), ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
           "gemini-2.5-flash"),
    Vendor("openrouter", "openai", ("openrouter.ai",), ("OPENROUTER_API_KEY",),
           "deepseek/deepseek-chat", "https://openrouter.ai/api/v1"),
    Vendor("grok", "openai", ("x.ai",), ("XAI_API_KEY",), "grok-4", "https://api.x.ai/v1"),
    Vendor("deepseek", "openai", ("deepseek.com",), ("DEEPSEEK_API_KEY",), "deepseek-chat",
           "https://api.deepseek.com/v1"),
    Vendor("mistral", "openai", ("mistral.ai",), ("MISTRAL_API_KEY",), "mistral-large-latest",
           "https://api.mistral.ai/v1"),
    Vendor("groq", "openai", ("groq.com",), ("GROQ_API_KEY",), "llama-3.3-70b-versatile",
           "https://api.groq.com/openai/v1"),
    Vendor("azure", "openai", ("openai.azure.com", "ai.azure.com", "cognitiveservices.azure.com"),
           ("AZURE_OPENAI_API_KEY",), ""),
    Vendor("ollama", "ollama", ("ollama.com",), ("OLLAMA_API_KEY",), ""),
)  # fmt: skip
"""In the order of suggestions; services without a model are not suggested."""

_OWN_VENDOR = {
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
"""The vendor of each type's own base URL."""


def vendor_of(provider: Provider) -> Vendor | None:
    """The vendor of a provider; None for a private server.

    A vendor's key is sent only to that vendor's hosts. With several addresses, all must be its.
    """
    if not provider.urls:
        name = _OWN_VENDOR.get(provider.type)
        return next((vendor for vendor in VENDORS if vendor.name == name), None)
    hosts = [(urlsplit(url).hostname or "").lower() for url in provider.urls]
    return next((v for v in VENDORS if all(_belongs(host, v.hosts) for host in hosts)), None)


def vendors_with_key(env: Mapping[str, str]) -> list[tuple[Vendor, str]]:
    """The vendors whose key is in the environment, each with the variable that holds it."""
    return [
        (vendor, variable)
        for vendor in VENDORS
        if vendor.model
        for variable in [v for v in vendor.variables if env.get(v, "").strip()][:1]
    ]


def _belongs(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
