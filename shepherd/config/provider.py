"""A provider: a service that answers, its types and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from shepherd import errors, validation
from shepherd.config import section, settings
from shepherd.plugins import Group, installed_plugins

ProviderType = Literal[
    "openai", "openai-responses", "anthropic", "gemini", "ollama", "shepherd", "llamacpp",
    "tensorrt",
]  # fmt: skip
PROVIDER_TYPES: tuple[str, ...] = get_args(ProviderType)

_TYPES_BY_OTHER_NAMES = {
    "claude": "anthropic",
    "google": "gemini",
    "gguf": "llamacpp",
    "llama.cpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "tensorrt-llm": "tensorrt",
    "trtllm": "tensorrt",
    "responses": "openai-responses",
    **dict.fromkeys(
        ("azure", "chatgpt", "deepseek", "gpt", "grok", "groq", "litellm", "lm-studio", "lmstudio",
         "mistral", "openrouter", "sglang", "together", "vllm", "xai"),
        "openai",
    ),
}  # fmt: skip
"""Other names that users may use for the API of a vendor or a server."""


def type_meant(value: object, types: Iterable[str]) -> str:
    """The most similar type, as the end of a sentence; "" if there is none."""
    name = str(value).strip().lower().replace("_", "-")
    known = _TYPES_BY_OTHER_NAMES.get(name)
    return f"; did you mean {known}?" if known else validation.did_you_mean(name, types)


def known_types() -> list[str]:
    """The types of providers, also those that plugins add; plugins are not loaded."""
    groups = (Group.BACKENDS, Group.ADAPTERS)
    plugins = [plugin.name for plugin in installed_plugins() if plugin.group in groups]
    return [*PROVIDER_TYPES, *plugins]


Dialect = Literal["", "strict", "extended"]

LOCAL = "local"
"""Not a provider: the model from the settings, in this process."""

RESERVED = (LOCAL, "next", "list", "show", "use", "add", "set", "test", "remove", "help")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_KEY_SOURCE = re.compile(r"(|none|file|keyring|env:[A-Za-z_][A-Za-z0-9_]*)")


def _web_address(url: str) -> str:
    """The URL without a slash at its end, so that paths can be added; raises ValueError."""
    validation.check_web_address(url, "give it as the key")
    return url.rstrip("/")


def _web_addresses(urls: list[str]) -> list[str]:
    """All the URLs, as `_web_address` makes them; "" is not the type's own address here."""
    if not all(urls):
        raise ValueError("must hold no empty address")
    return [_web_address(url) for url in urls]


def _check_place(place: str) -> str:
    """The place of a key; the error does not quote it, because it may be a key."""
    if not _KEY_SOURCE.fullmatch(place):
        raise ValueError(
            'says where the key is, not the key: "env:NAME", "file", "keyring" or "none"; '
            "store one with `shepherd provider set NAME api-key -`"
        )
    return place


class Provider(section.Section):
    """A service that answers, and the settings to reach its model."""

    name: str = Field(exclude=True)
    type: str
    """The type of API, `llamacpp` for a GGUF file, or the type of a plugin."""

    model: str = ""
    """The model's name there; "" = the only model that it offers."""

    base_url: Annotated[str, AfterValidator(_web_address)] = ""
    """URL of the API, up to and with `/v1`; "" = the type's own."""

    base_urls: Annotated[list[str], AfterValidator(_web_addresses)] = Field(
        default=[], max_length=1000
    )
    """URLs of several servers with the same model, beside `base_url`: a conversation stays with the
    server that has it in its cache."""

    check_seconds: float = Field(default=10.0, ge=0, le=86_400)
    """Several URLs: seconds between checks of a silent server; 0 = only after failures."""

    first_byte_seconds: float = Field(default=60.0, ge=0, le=86_400)
    """Several URLs: seconds until an answer must begin; then another server gets the request; 0 =
    no limit. It must be longer than reading the longest prompt takes."""

    affinity_factor: float = Field(default=1.5, ge=1, le=1000)
    """Several URLs: the server with the conversation in its cache may have so many times the
    requests of the least busy one, plus `affinity_slack`."""

    affinity_slack: float = Field(default=2.0, ge=0, le=100_000)
    """Several URLs: so many requests more it may have; see `affinity_factor`."""

    api_key: Annotated[str, AfterValidator(_check_place)] = Field(default="", repr=False)
    """The place of the key: `env:NAME`, `file` (credentials.toml), `keyring` (the system's) or
    `none`; "" = the usual variable of the vendor."""

    context_size: int = Field(default=0, ge=0, le=16_777_216)
    """Context size in tokens; 0 = as the server says."""

    output_limit: int = Field(default=0, ge=0, le=16_777_216)
    """Maximum answer in tokens; 0 = the model's."""

    requests_per_minute: int = Field(default=0, ge=0, le=1_000_000)
    """Maximum requests per minute; 0 = no limit."""

    tokens_per_minute: int = Field(default=0, ge=0, le=1_000_000_000)
    """Maximum tokens per minute, of prompts and answers; 0 = no limit."""

    priority: int = Field(default=100, ge=0, le=1000)
    """Place in the order; the lowest is first."""

    ask: bool = True
    """Whether models of other providers may ask it (`ask_NAME`)."""

    dialect: Dialect = ""
    """`strict` or `extended` OpenAI parameters; "" = as known of the server."""

    effort: section.Effort = Field(default=section.Effort.UNSET, strict=False)
    """How much the model thinks; an unsupported value becomes the nearest supported one. "" = as
    `model.thinking` says."""

    headers: dict[str, str] = Field(default={}, repr=False)
    """Additional headers of each request."""

    tokenizer: str = ""
    """TensorRT-LLM in this process: tokenizer; "" = the model's."""

    tensor_parallel: int = Field(default=1, ge=1, le=64)
    """TensorRT-LLM: GPUs that share each tensor."""

    pipeline_parallel: int = Field(default=1, ge=1, le=64)
    """TensorRT-LLM: GPUs that share the layers."""

    gpu_memory: float = Field(default=0.9, ge=0.01, le=1.0)
    """TensorRT-LLM: share of free memory for the KV cache."""

    max_batch_size: int = Field(default=0, ge=0, le=100_000)
    """TensorRT-LLM: parallel requests; 0 = its default."""

    guided_decoding: Literal["", "xgrammar", "llguidance"] = ""
    """TensorRT-LLM: the library that enforces schemas; "" = none."""

    trust_remote_code: bool = False
    """TensorRT-LLM: run the model's own code."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of its servers, each once; () for the type's own address."""
        return tuple(dict.fromkeys(filter(None, (self.base_url, *self.base_urls))))

    def at(self, url: str) -> Provider:
        """The provider with this address alone."""
        return self.model_copy(update={"base_url": url, "base_urls": []})

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process and takes its memory."""
        return self.type == "llamacpp" or (self.type == "tensorrt" and not self.urls)

    @property
    def label(self) -> str:
        """`NAME/MODEL`, which `model.provider` understands."""
        return f"{self.name}/{self.model}" if self.model else self.name


def make_provider(name: str, values: Mapping[str, object], *, is_stored: bool = False) -> Provider:
    """A validated provider; raises ConfigError that names the error, never a key.

    A provider that `is_stored` may have an unknown type, because its plugin may be removed.
    """
    check_name(name)
    problems = [] if is_stored else _type_problems(values.get("type"))
    try:
        provider = Provider.model_validate({**values, "name": name})
    except ValidationError as error:
        problems = error.errors(include_url=False) + problems
    else:
        if not problems:
            return provider
    raise errors.ConfigError("\n".join(_describe(name, p) for p in problems))


def _type_problems(type: object) -> list[ErrorDetails]:
    """The problem of a text that is not a known type, as pydantic states one."""
    if not isinstance(type, str) or type in known_types():
        return []
    message = "Input should be a type of providers"
    return [{"type": "literal_error", "loc": ("type",), "msg": message, "input": type}]


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` is valid for a provider."""
    if not _NAME.fullmatch(name):
        raise errors.ConfigError(
            f"{name!r} can't be a provider's name: use up to 40 small letters, digits, '-' or '_', "
            "a letter or digit first."
        )
    if name in RESERVED:
        raise errors.ConfigError(f"{name} is a word of the commands; choose another name.")


def _describe(name: str, problem: ErrorDetails) -> str:
    """One of pydantic's problems with a provider, in a sentence without the value."""
    key = validation.key_of(problem)
    setting = str(problem["loc"][0])
    field = Provider.model_fields.get(setting)
    types = known_types()
    if setting == "type":
        expectation = "one of " + ", ".join(f'"{word}"' for word in types)
    elif setting == "headers":
        expectation = "a table of texts"
    else:
        expectation = "" if field is None else settings.expected(field)
    suggestion = validation.did_you_mean(key, Provider.model_fields)
    text = validation.describe_problem(
        problem,
        f"{name}.{key}",
        unknown=f"unknown setting {name}.{key}{suggestion}",
        expected=expectation,
    )
    if setting != "type":
        return text
    if problem["type"] == "missing":
        return f"{text}; it is one of {', '.join(types)}"
    return text + type_meant(problem["input"], types)


def missing_type(provider: Provider) -> str:
    """A message that the provider's type needs a missing plugin; "" if the type is known."""
    types = known_types()
    if provider.type in types:
        return ""
    guess = type_meant(provider.type, types)
    return (
        f"Provider {provider.name}: the type {provider.type} needs a plugin that is not "
        f"installed{guess or '; `shepherd doctor` lists plugins.'}"
    )


class Vendor(Struct, frozen=True):
    """One service; `variables` are the usual names of its key, in order of preference.

    `base_url` is "" for the type's own address. `model` is a suggestion.
    """

    name: str
    type: ProviderType
    hosts: tuple[str, ...]
    variables: tuple[str, ...]
    model: str
    base_url: str = ""

    def variable_in(self, env: Mapping[str, str]) -> str | None:
        """The first of its variables that holds a key."""
        return next((name for name in self.variables if env.get(name, "").strip()), None)


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
    """The vendors to suggest, because their key is in the environment, and its variable."""
    suggested = [(vendor, vendor.variable_in(env)) for vendor in VENDORS if vendor.model]
    return [(vendor, variable) for vendor, variable in suggested if variable]


def _belongs(host: str, domains: tuple[str, ...]) -> bool:
    """Whether a host is one of these domains, or below one: `api.x.ai` belongs to `x.ai`."""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
