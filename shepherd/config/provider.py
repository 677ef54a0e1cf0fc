"""A provider: a service that answers, its types and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from shepherd.config.choices import Effort
from shepherd.config.section import Section
from shepherd.config.settings import expected
from shepherd.errors import ConfigError
from shepherd.plugins import Group, installed_plugins
from shepherd.validation import check_web_address, describe_problem, did_you_mean, key_of

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
    return f"; did you mean {known}?" if known else did_you_mean(name, types)


def is_known_type(type: str) -> bool:
    return type in PROVIDER_TYPES or type in plugin_types()


def plugin_types() -> list[str]:
    """The types of providers that plugins add; plugins are not loaded."""
    return [p.name for p in installed_plugins() if p.group is Group.BACKENDS]


_one_of = ", ".join(f"`{name}`" for name in PROVIDER_TYPES)
Dialect = Literal["", "strict", "extended"]

LOCAL = "local"
"""Not a provider: the model from the settings, in this process."""

RESERVED = (LOCAL, "next", "list", "show", "use", "add", "set", "test", "remove", "help")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_KEY_SOURCE = re.compile(r"(|none|file|keyring|env:[A-Za-z_][A-Za-z0-9_]*)")


def _web_address(url: str) -> str:
    check_web_address(url, "give it as the key")
    return url.rstrip("/")


def _web_addresses(urls: list[str]) -> list[str]:
    if not all(urls):
        raise ValueError("must hold no empty address")
    return [_web_address(url) for url in urls]


def _check_place(place: str) -> str:
    if not _KEY_SOURCE.fullmatch(place):
        raise ValueError(
            'says where the key is, not the key: "env:NAME", "file", "keyring" or "none"; '
            "store one with `shepherd provider set NAME api-key -`"
        )
    return place


class Provider(Section):
    """A service that answers, and the settings to reach its model."""

    name: Annotated[str, Field(exclude=True)]
    type: Annotated[
        str,
        Field(
            description=f"The type of API, or `llamacpp` for a GGUF file: {_one_of}, or the "
            "type of a plugin."
        ),
    ]
    model: Annotated[
        str, Field(description='The model\'s name there; "" = the only model that it offers.')
    ] = ""
    base_url: Annotated[
        str,
        Field(
            description='URL of the API, up to and with `/v1`; "" = the type\'s own.',
        ),
        AfterValidator(_web_address),
    ] = ""
    base_urls: Annotated[
        list[str],
        Field(
            max_length=1000,
            description="URLs of several servers with the same model, beside `base_url`: a "
            "conversation stays with the server that has it in its cache.",
        ),
        AfterValidator(_web_addresses),
    ] = []
    check_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="Several URLs: seconds between checks of a silent server; 0 = only after "
            "failures.",
        ),
    ] = 10.0
    affinity_factor: Annotated[
        float,
        Field(
            ge=1,
            le=1000,
            description="Several URLs: the server with the conversation in its cache may have so "
            "many times the requests of the least busy one, plus `affinity_slack`.",
        ),
    ] = 1.5
    affinity_slack: Annotated[
        float,
        Field(
            ge=0,
            le=100_000,
            description="Several URLs: so many requests more it may have; see `affinity_factor`.",
        ),
    ] = 2.0
    api_key: Annotated[
        str,
        Field(
            repr=False,
            description="The place of the key: `env:NAME`, `file` (credentials.toml), `keyring` "
            '(the system\'s) or `none`; "" = the usual variable of the vendor.',
        ),
        AfterValidator(_check_place),
    ] = ""
    context_size: Annotated[
        int,
        Field(ge=0, le=16_777_216, description="Context size in tokens; 0 = as the server says."),
    ] = 0
    output_limit: Annotated[
        int, Field(ge=0, le=16_777_216, description="Maximum answer in tokens; 0 = the model's.")
    ] = 0
    requests_per_minute: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Maximum requests per minute; 0 = no limit."),
    ] = 0
    tokens_per_minute: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000_000,
            description="Maximum tokens per minute, of prompts and answers; 0 = no limit.",
        ),
    ] = 0
    priority: Annotated[
        int, Field(ge=0, le=1000, description="Place in the order; the lowest is first.")
    ] = 100
    ask: Annotated[
        bool, Field(description="Whether models of other providers may ask it (`ask_NAME`).")
    ] = True
    dialect: Annotated[
        Dialect,
        Field(description='`strict` or `extended` OpenAI parameters; "" = as known of the server.'),
    ] = ""
    effort: Annotated[
        Effort,
        Field(
            strict=False,
            description="How much the model thinks; an unsupported value becomes the nearest "
            'supported one. "" = as `model.thinking` says.',
        ),
    ] = Effort.UNSET
    headers: Annotated[
        dict[str, str],
        Field(
            repr=False,
            description="Additional headers of each request.",
        ),
    ] = {}
    tokenizer: Annotated[
        str,
        Field(description='TensorRT-LLM in this process: tokenizer; "" = the model\'s.'),
    ] = ""
    tensor_parallel: Annotated[
        int, Field(ge=1, le=64, description="TensorRT-LLM: GPUs that share each tensor.")
    ] = 1
    pipeline_parallel: Annotated[
        int, Field(ge=1, le=64, description="TensorRT-LLM: GPUs that share the layers.")
    ] = 1
    gpu_memory: Annotated[
        float,
        Field(ge=0.01, le=1.0, description="TensorRT-LLM: share of free memory for the KV cache."),
    ] = 0.9
    max_batch_size: Annotated[
        int,
        Field(ge=0, le=100_000, description="TensorRT-LLM: parallel requests; 0 = its default."),
    ] = 0
    guided_decoding: Annotated[
        Literal["", "xgrammar", "llguidance"],
        Field(description='TensorRT-LLM: the library that enforces schemas; "" = none.'),
    ] = ""
    trust_remote_code: Annotated[
        bool, Field(description="TensorRT-LLM: run the model's own code.")
    ] = False

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
    raise ConfigError("\n".join(_describe(name, p) for p in problems)) from None


def _type_problems(type: object) -> list[ErrorDetails]:
    """The problem of a text that is not a known type, as pydantic states one."""
    if not isinstance(type, str) or is_known_type(type):
        return []
    message = "Input should be a type of providers"
    return [{"type": "literal_error", "loc": ("type",), "msg": message, "input": type}]


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` is valid for a provider."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} can't be a provider's name: use up to 40 small letters, digits, '-' or '_', "
            "a letter or digit first."
        )
    if name in RESERVED:
        raise ConfigError(f"{name} is a word of the commands; choose another name.")


def _describe(name: str, problem: ErrorDetails) -> str:
    """One of pydantic's problems with a provider, in a sentence without the value."""
    key = key_of(problem)
    first = str(problem["loc"][0])
    field = Provider.model_fields.get(first)
    types = (*PROVIDER_TYPES, *plugin_types()) if first == "type" else ()
    if types:
        expectation = "one of " + ", ".join(f'"{word}"' for word in types)
    else:
        expectation = "a table of texts" if first == "headers" else expected(field) if field else ""
    text = describe_problem(
        problem,
        f"{name}.{key}",
        unknown=f"unknown setting {name}.{key}{did_you_mean(key, Provider.model_fields)}",
        expected=expectation,
    )
    if first != "type":
        return text
    if problem["type"] == "missing":
        return f"{text}; it is one of {', '.join(types)}"
    return text + type_meant(problem["input"], types)


def missing_type(provider: Provider) -> str:
    """A message that the provider's type needs a missing plugin; "" if the type is known."""
    if is_known_type(provider.type):
        return ""
    guess = type_meant(provider.type, (*PROVIDER_TYPES, *plugin_types()))
    return (
        f"Provider {provider.name}: the type {provider.type} needs a plugin that is not "
        f"installed{guess or '; `shepherd doctor` lists plugins.'}"
    )
