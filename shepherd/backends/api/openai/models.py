"""The properties of OpenAI's models, by their names, and of models in lists."""

import re

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.coerce import (
    as_count,
    as_flag,
    as_object,
    as_objects,
    as_text,
    as_texts,
)
from shepherd.backends.api.model_list import listed_model
from shepherd.backends.api.parameters import EFFORTS, NONE, nearest
from shepherd.config.choices import Effort
from shepherd.messages import JsonObject

_SERIES_O = re.compile(r"o\d+(?!\w)")
_GPT = re.compile(r"gpt-(\d)(?:\.(\d+))?(?!\d)")
_ONLY_RESPONSES = re.compile(r"codex|deep-research|computer-use|-pro(?!\w)")

_TOOLS_FORBID_EFFORT = (5, 2)
_TOOLS_NEED_RESPONSES = (5, 4)
_XHIGH_SINCE = (5, 2)


def reasons(model: str) -> bool:
    """Whether it is one of OpenAI's reasoning models, which do not accept a temperature."""
    name = _own_name(model)
    if _SERIES_O.match(name) or name.startswith(("codex-mini", "computer-use")):
        return True
    return gpt_version(model) >= (5, 0) and "-chat" not in name


def gpt_version(model: str) -> tuple[int, int]:
    """The version of one of OpenAI's GPT models, (0, 0) for any other model."""
    match = _GPT.match(_own_name(model))
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def needs_responses(model: str) -> bool:
    """Whether chat completions lack one of OpenAI's models, or its tool calls.

    It is False for other vendors' names: routers translate by themselves.
    """
    name = _own_name(model)
    if "/" in model or not (reasons(model) or "-deep-research" in name):
        return False
    return bool(_ONLY_RESPONSES.search(name)) or gpt_version(model) >= _TOOLS_NEED_RESPONSES


def chat_effort(model: str, effort: str, *, tools: bool) -> str | None:
    """The `reasoning_effort` of an OpenAI model in chat completions, None for other models.

    `effort` is the requested level, "" for the minimum. From GPT-5.2 on, OpenAI accepts tools there
    only without reasoning.
    """
    if not reasons(model):
        return None
    version = gpt_version(model)
    if tools and "/" not in model and version >= _TOOLS_FORBID_EFFORT:
        return "none"
    return effort_of(model, effort)


def effort_of(model: str, effort: str) -> str:
    """The level of an OpenAI reasoning model that is nearest to `effort`; "" is the minimum."""
    minimum = min_effort(model)
    if not effort:
        return minimum
    known = list(EFFORTS[EFFORTS.index(minimum) :])
    if minimum == NONE:
        known.remove(Effort.MINIMAL)  # only GPT-5 has it
    if gpt_version(model) < _XHIGH_SINCE:
        known.remove(Effort.XHIGH)
    return nearest(effort, tuple(known))


def min_effort(model: str) -> str:
    """The minimum reasoning of one of OpenAI's reasoning models."""
    version, name = gpt_version(model), _own_name(model)
    if "-pro" in name:
        return "medium" if version != (5, 0) else "high"
    if "codex" in name or version < (5, 0):
        return "low"
    return "none" if version >= (5, 1) else "minimal"


def parse_models(body: JsonObject) -> list[ModelEntry]:
    """The models of a list in OpenAI's format, with the extensions of other servers."""
    entries = [_entry(item) for item in as_objects(body.get("data"))]
    return [entry for entry in entries if entry.id]


def parse_props(body: JsonObject, model: str) -> ModelEntry | None:
    """The context of one of llama.cpp's slots, from `/props`; None if it is missing."""
    size = as_count(as_object(body.get("default_generation_settings")).get("n_ctx"))
    vision = as_flag(as_object(body.get("modalities")).get("vision"))
    return ModelEntry(model, size, source="llama.cpp's /props", vision=vision) if size else None


def _own_name(model: str) -> str:
    """The name without the vendor if the vendor is OpenAI; else ""."""
    name = model.lower().removeprefix("openai/")
    return "" if "/" in name else name


def _entry(item: JsonObject) -> ModelEntry:
    return listed_model(as_text(item.get("id")), item, vision=_vision(item))


def _vision(item: JsonObject) -> bool | None:
    """Whether the model sees, in the formats of OpenRouter and Shepherd, Mistral and LM Studio."""
    modalities = as_texts(as_object(item.get("architecture")).get("input_modalities"))
    if modalities:
        return "image" in modalities
    flag = as_flag(as_object(item.get("capabilities")).get("vision"))
    return {"vlm": True, "llm": False}.get(as_text(item.get("type"))) if flag is None else flag
