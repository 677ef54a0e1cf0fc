"""What an Ollama server says about its models, as plain data."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shepherd.backends.api.coerce import as_count, as_object, as_text, as_texts
from shepherd.backends.api.ollama.window import shown_window, trained_context
from shepherd.backends.output.style import GENERIC, detect_style
from shepherd.messages import JsonObject


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on the server's disk; `size` in bytes, `loaded` says whether it is in memory.

    `remote_host` is where a model of Ollama's cloud runs, of which the disk has the name alone.
    """

    name: str
    size: int = 0
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    loaded: bool = False
    remote_host: str = ""


@dataclass(frozen=True, slots=True)
class ShownModel:
    """A model in detail; tokens are 0 where the server does not tell.

    `context_size` is what is asked for unless a setting says otherwise, `trained_context` the most
    that the model could take. `capabilities` are Ollama's words: completion, tools, thinking,
    vision, embedding. `template` is the family of its chat template, "" if it tells none.
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
    """A step of a pull; bytes of the file `digest`, both 0 in steps that transfer nothing."""

    status: str
    digest: str = ""
    completed: int = 0
    total: int = 0

    @property
    def fraction(self) -> float | None:
        """How much of the file is there, None in steps that transfer nothing."""
        return min(self.completed / self.total, 1.0) if self.total > 0 else None


def local_model(item: JsonObject, loaded: Collection[Any]) -> LocalModel:
    """One entry of /api/tags; `loaded` holds the names of those in memory."""
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


def shown_model(name: str, body: JsonObject) -> ShownModel:
    """The answer of /api/show."""
    details = as_object(body.get("details"))
    window = shown_window(body, name)
    return ShownModel(
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
    """The family, which Ollama's own language of templates shows as well as Jinja does."""
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
