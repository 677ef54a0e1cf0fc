"""The limits and prices of models, in the lists of models of all APIs."""

import math
from collections.abc import Iterable

from shepherd import messages, prices
from shepherd.backends.api.adapter import ModelEntry
from shepherd.json_text import as_count, as_flag, as_object

CONTEXT_FIELDS = (
    "loaded_context_length",  # LM Studio
    "meta.n_ctx",  # llama.cpp: the loaded size
    "max_model_len",  # vLLM, SGLang, Shepherd
    "context_window",  # Groq
    "top_provider.context_length",  # OpenRouter: the provider's limit
    "context_length",
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic, LiteLLM
    "model_info.max_input_tokens",  # LiteLLM
    "limits.max_input_tokens",  # GitHub Models
    "inputTokenLimit",  # Gemini
    "meta.n_ctx_train",  # the size in training
)
"""The fields of the context size in a list of models, the most exact one first."""

OUTPUT_FIELDS = (
    "top_provider.max_completion_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "model_info.max_output_tokens",
    "limits.max_output_tokens",
    "outputTokenLimit",
)
"""The fields of the output limit."""


def listed_model(
    id: str,
    item: messages.JsonObject,
    *,
    vision: bool | None = None,
    output_fields: Iterable[str] = OUTPUT_FIELDS,
) -> ModelEntry:
    """The model that an item of a list describes; 0 tokens for an unknown limit."""
    size, size_field = _first_count(item, CONTEXT_FIELDS)
    limit, _ = _first_count(item, output_fields)
    source = f"the list of models ({size_field})" if size else ""
    return ModelEntry(id, size, limit, source, vision, price=listed_price(item))


def llama_cpp_model(body: messages.JsonObject, model: str, source: str) -> ModelEntry | None:
    """The context of one of llama.cpp's slots, from its `/props`; None if it is missing."""
    size = as_count(as_object(body.get("default_generation_settings")).get("n_ctx"))
    vision = as_flag(as_object(body.get("modalities")).get("vision"))
    return ModelEntry(model, size, source=source, vision=vision) if size else None


def _first_count(item: messages.JsonObject, fields: Iterable[str]) -> tuple[int, str]:
    """The first number of tokens that is not 0, and its field; (0, "") without one."""
    for field in fields:
        if number := as_count(_value(item, field)):
            return number, field
    return 0, ""


def _value(item: messages.JsonObject, field: str) -> object:
    """The value of a field such as "meta.n_ctx": a dot leads into an object."""
    *steps, last = field.split(".")
    for step in steps:
        item = as_object(item.get(step))
    return item.get(last)


READ_FIELDS = (
    "pricing.prompt",  # OpenRouter
    "pricing.input",  # Together, Vercel's and Perplexity's gateways
    "metadata.pricing.input_tokens",  # DeepInfra
    "model_info.input_cost_per_token",  # LiteLLM
)
WRITTEN_FIELDS = (
    "pricing.completion",
    "pricing.output",
    "metadata.pricing.output_tokens",
    "model_info.output_cost_per_token",
)
CACHED_FIELDS = (
    "pricing.input_cache_read",
    "pricing.cached_input",
    "pricing.cache_read",
    "metadata.pricing.cache_read_tokens",
    "model_info.cache_read_input_token_cost",
)

MAX_PER_TOKEN = 0.001
"""US dollars. Greater prices are for a million tokens, because none costs so much for one token."""


def listed_price(item: messages.JsonObject) -> prices.Price | None:
    """The price in an item of a list; None if it has none, or only zeros.

    Without a price of their own, cached tokens cost as much as others.
    """
    read = _first_amount(item, READ_FIELDS)
    written = _first_amount(item, WRITTEN_FIELDS)
    cached = _first_amount(item, CACHED_FIELDS)
    if read is None or written is None or not (read or written):
        return None
    unit = 1.0 if max(read, written) > MAX_PER_TOKEN else 1e6
    return prices.Price(read * unit, written * unit, (read if cached is None else cached) * unit)


def _first_amount(item: messages.JsonObject, fields: Iterable[str]) -> float | None:
    """The first price in these fields, which may be 0; None without one."""
    amounts = (_amount(_value(item, field)) for field in fields)
    return next((amount for amount in amounts if amount is not None), None)


def _amount(value: object) -> float | None:
    """A price as a number or as its text; None for others, such as -1 for a price that varies."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except ValueError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
