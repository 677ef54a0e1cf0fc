"""The properties of a Gemini model, by its name."""

import re

from shepherd.backends.api.parameters import BUDGETS, nearest
from shepherd.messages import JsonObject

_VERSION = re.compile(r"gemini-(\d+)")
_SIGNATURES_SINCE = 3
_LEVELS = ("low", "high")
_FLASH_LEVELS = ("minimal", "low", "medium", "high")


def model_path(model: str) -> str:
    """The model's resource name; tuned models have their own collection."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def generation(model: str) -> int:
    """The model's generation; aliases such as `gemini-flash-latest` mean the newest.

    0 for models of other families (Gemma) behind the same API.
    """
    name = model.rpartition("/")[2]
    if match := _VERSION.match(name):
        return int(match[1])
    return _SIGNATURES_SINCE if name.startswith("gemini") else 0


def wants_signatures(model: str) -> bool:
    """Whether the API refuses calls in the history that have no thought signature.

    This is so since Gemini 3: https://ai.google.dev/gemini-api/docs/thought-signatures
    """
    return generation(model) >= _SIGNATURES_SINCE


def thinking_config(
    model: str, *, on: bool, effort: str = "", budget: int | None = None
) -> JsonObject:
    """`thinkingConfig` for a model that can think; `effort` is ours, "" for the model's choice.

    `budget` is the limit of thoughts in tokens, for models that take one.

    Models up to 2.5 take a budget in tokens; -1 is the model's own choice, and Pro needs at least
    128. Later models take levels: all have LOW and HIGH, and Flash has all levels. No model takes
    both.
    """
    config: JsonObject = {"includeThoughts": True} if on else {}
    version = generation(model)
    if version == 0:
        return config
    if version >= _SIGNATURES_SINCE:
        level = nearest(effort, _FLASH_LEVELS if "flash" in model else _LEVELS) if effort else ""
        return config | {"thinkingLevel": level.upper() or ("HIGH" if on else "LOW")}
    minimum = 128 if "pro" in model else 0
    return config | {"thinkingBudget": _budget(effort, budget, minimum) if on else minimum}


def _budget(effort: str, budget: int | None, minimum: int) -> int:
    return BUDGETS.get(effort, -1) if budget is None else max(minimum, budget)
