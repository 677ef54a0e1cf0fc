"""How large a context and an answer may be, as lists of models of all APIs state it."""

from collections.abc import Iterable

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.coerce import as_count, as_object
from shepherd.messages import JsonObject

CONTEXT_FIELDS = (
    "loaded_context_length",  # LM Studio
    "meta.n_ctx",  # llama.cpp: what is loaded
    "max_model_len",  # vLLM, SGLang, Shepherd
    "context_window",  # Groq
    "top_provider.context_length",  # OpenRouter: what the provider gives of it
    "context_length",
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic, LiteLLM
    "model_info.max_input_tokens",  # LiteLLM
    "limits.max_input_tokens",  # GitHub Models
    "inputTokenLimit",  # Gemini
    "meta.n_ctx_train",  # what the model was made for
)
"""Where a list of models may state the context size, the most exact place first."""

OUTPUT_FIELDS = (
    "top_provider.max_completion_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "model_info.max_output_tokens",
    "limits.max_output_tokens",
    "outputTokenLimit",
)
"""Where it may state the longest answer."""


def listed_model(
    id: str,
    item: JsonObject,
    *,
    vision: bool | None = None,
    output_fields: Iterable[str] = OUTPUT_FIELDS,
) -> ModelEntry:
    """The model that an item of a list describes; 0 tokens where it does not state a limit."""
    size, field = _first(item, CONTEXT_FIELDS)
    limit, _ = _first(item, output_fields)
    return ModelEntry(id, size, limit, f"the list of models ({field})" if size else "", vision)


def _first(item: JsonObject, fields: Iterable[str]) -> tuple[int, str]:
    """The first of the numbers that is there and not zero, and its place; (0, "") without one."""
    for field in fields:
        *steps, last = field.split(".")
        holder = item
        for step in steps:
            holder = as_object(holder.get(step))
        if value := as_count(holder.get(last)):
            return value, field
    return 0, ""
