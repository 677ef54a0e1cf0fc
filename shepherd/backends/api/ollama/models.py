"""An Ollama server's data about its models."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shepherd.backends.api.coerce import as_count, as_object, as_text, as_texts
from shepherd.backends.api.ollama.window import stored_window, trained_context
from shepherd.backends.output.style import GENERIC, detect_style
from shepherd.messages import JsonObject


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on the server's disk; `size` in bytes, `loaded` tells whether it is in memory.

    `remote_host` is the host of a model in Ollama's cloud; the disk holds only its name.
    """

    name: str
    size: int = 0
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    loaded: bool = False
    remote_host: str = ""


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """A model in detail; tokens are 0 if the server does not state them.

    `context_size` is requested unless a setting overrides it; `trained_context` is the model's
    maximum. `capabilities` are Ollama's words: completion, tools, thinking, vision, embedding.
    `template` is the family of its chat template, "" if unknown.
    """

    name: str
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    context_size: int = 0
    trained_context: int = 0
    capabilities: tuple[str, ...] = ()
    parameters: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A step of a pull; bytes of the file `digest`, both 0 in steps without a transfer."""

    status: str
    digest: str = ""
    completed: int = 0
    total: int = 0

    @property
    def fraction(self) -> float | None:
        """The fetched share of the file; None in steps without a transfer."""
        return min(self.completed / self.total, 1.0) if self.total > 0 else None


def local_model(item: JsonObject, loaded: Collection[Any]) -> LocalModel:
    """One entry of /api/tags; `loaded` holds the names of models in memory."""
    name = as_text(item.get("name")) or as_text(item.get("model"))
    details = as_object(item.get("details"))
    return LocalModel(
        name,
        size=as_count(item.get("size")) or 0,
        family=as_text(details.get("family")),
        parameter_size=as_text(details.get("parameter_size")),
        quantization=as_text(details.get("quantization_level")),
        loaded=name in loaded,
        remote_host=as_text(item.get("remote_host")),
    )


def model_details(name: str, body: JsonObject) -> ModelDetails:
    """The answer of /api/show."""
    details = as_object(body.get("details"))
    window = stored_window(body, name)
    return ModelDetails(
        name,
        family=as_text(details.get("family")),
        parameter_size=as_text(details.get("parameter_size")),
        quantization=as_text(details.get("quantization_level")),
        context_size=window.context_size if window else 0,
        trained_context=trained_context(body),
        capabilities=tuple(as_texts(body.get("capabilities"))),
        parameters=as_text(body.get("parameters")),
        template=_template(as_text(body.get("template"))),
    )


def _template(text: str) -> str:
    """The family, which Ollama's own template language shows as well as Jinja does."""
    family = detect_style(text).family
    return "" if family == GENERIC.family else family


def progress(step: JsonObject) -> PullProgress:
    """One line of a pull."""
    return PullProgress(
        as_text(step.get("status")),
        as_text(step.get("digest")),
        as_count(step.get("completed")) or 0,
        as_count(step.get("total")) or 0,
    )
