"""The types of providers: the built-in ones, those of plugins, and what users may call them."""

from collections.abc import Iterable
from typing import Literal, get_args

from shepherd.plugins import Group, installed_plugins
from shepherd.validation import did_you_mean

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
