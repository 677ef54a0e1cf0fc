"""The prices of models, in the lists of those providers that state them."""

import math
from collections.abc import Iterable

from shepherd.backends.api.coerce import as_object
from shepherd.messages import JsonObject
from shepherd.prices import Price

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


def listed_price(item: JsonObject) -> Price | None:
    """The price in an item of a list; None if it has none, or only zeros.

    Without a price of their own, cached tokens cost as much as others.
    """
    read, written = _first(item, READ_FIELDS), _first(item, WRITTEN_FIELDS)
    if read is None or written is None or not (read or written):
        return None
    cached = _first(item, CACHED_FIELDS)
    unit = 1.0 if max(read, written) > MAX_PER_TOKEN else 1e6
    return Price(read * unit, written * unit, (read if cached is None else cached) * unit)


def _first(item: JsonObject, fields: Iterable[str]) -> float | None:
    for field in fields:
        *steps, last = field.split(".")
        holder = item
        for step in steps:
            holder = as_object(holder.get(step))
        amount = _amount(holder.get(last))
        if amount is not None:
            return amount
    return None


def _amount(value: object) -> float | None:
    """A price as a number or as its text; None for others, such as -1 for a price that varies."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except ValueError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
