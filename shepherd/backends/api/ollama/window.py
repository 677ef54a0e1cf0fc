"""The context size of a model on an Ollama server."""

import re
from typing import Any

from shepherd.backends.api.adapter import ModelEntry
from shepherd.backends.api.coerce import as_count, as_object, as_objects, as_text
from shepherd.messages import JsonObject

DEFAULT_NUM_CTX = 8192
"""The requested size if none is known: enough for tools, and fits on most machines."""

MAX_DEFAULT_CONTEXT = 32_768
"""The maximum of a trained context that is requested without a setting.

Ollama reserves memory for all of it when it loads the model, and trained contexts often need more
memory than the machine has.
"""

_PARAMETER = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)


def loaded_window(body: JsonObject, model: str) -> ModelEntry | None:
    """The context of a model that is in memory, from /api/ps."""
    for item in entries(body):
        if same_model(model, (item.get("name"), item.get("model"))):
            size = as_count(item.get("context_length"))
            return ModelEntry(model, size, source="the model in Ollama's memory") if size else None
    return None


def stored_window(body: JsonObject, model: str) -> ModelEntry | None:
    """The context of a model on disk, from /api/show: its `num_ctx`, else its trained context.

    A model in Ollama's cloud has all of its trained context.
    """
    result = _PARAMETER.findall(as_text(body.get("parameters")))
    if result and int(result[-1]):
        return ModelEntry(model, int(result[-1]), source="num_ctx in the model's parameters")
    trained = trained_context(body)
    if not trained:
        return None
    if trained <= MAX_DEFAULT_CONTEXT or body.get("remote_host"):
        return ModelEntry(model, trained, source="context_length of the model")
    source = f"the model could take {trained} tokens; set context_size to use more of them"
    return ModelEntry(model, MAX_DEFAULT_CONTEXT, source=source)


def entries(body: JsonObject) -> list[JsonObject]:
    """The models in an answer of /api/tags or /api/ps."""
    return as_objects(body.get("models"))


def same_model(name: str, others: tuple[Any, ...]) -> bool:
    """Whether one of the names means the same model; `latest` is the default tag."""
    return _tagged(name) in {_tagged(other) for other in others if isinstance(other, str)}


def _tagged(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def trained_context(body: JsonObject) -> int:
    """The context size in the model's training, from /api/show; 0 if unknown."""
    facts = as_object(body.get("model_info"))
    own = as_count(facts.get(f"{facts.get('general.architecture')}.context_length"))
    others = (as_count(v) or 0 for k, v in facts.items() if k.endswith(".context_length"))
    return own or max(others, default=0)
