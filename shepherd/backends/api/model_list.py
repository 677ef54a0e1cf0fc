"""The limits of context and answer, in the lists of models of all APIs."""

from collections.abc import Iterable

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.coerce import as_count, as_object
from shepherd.backends.api.model_prices import listed_price
from shepherd.messages import JsonObject

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
    item: JsonObject,
    *,
    vision: bool | None = None,
    output_fields: Iterable[str] = OUTPUT_FIELDS,
) -> ModelEntry:
    """The model that an item of a list describes; 0 tokens for an unknown limit."""
    size, field = _first(item, CONTEXT_FIELDS)
    limit, _ = _first(item, output_fields)
    source = f"the list of models ({field})" if size else ""
    return ModelEntry(id, size, limit, source, vision, price=listed_price(item))


def _first(item: JsonObject, fields: Iterable[str]) -> tuple[int, str]:
    """The first positive number and its field; (0, "") without one."""
    for field in fields:
        *steps, last = field.split(".")
        holder = item
        for step in steps:
            holder = as_object(holder.get(step))
        if value := as_count(holder.get(last)):
            return value, field
    return 0, ""
