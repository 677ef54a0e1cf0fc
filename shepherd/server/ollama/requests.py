"""Requests of the Ollama API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AliasChoices, BeforeValidator, Field, PlainValidator

from shepherd.durations import parse_duration
from shepherd.images import Image
from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.models import Models
from shepherd.server.wire.content import images_in_base64
from shepherd.server.wire.embedding import MAX_DIMENSIONS, MAX_INPUTS
from shepherd.server.wire.fields import (
    NUMBER,
    Integer,
    ListOrNull,
    NotServed,
    OwnControls,
    Tools,
    few_messages,
    in_range,
    list_or_empty,
    token_limit,
)
from shepherd.server.wire.sampling import SamplingFields
from shepherd.server.wire.tools import WireFunction, WireFunctionCall

_LEVELS = ("low", "medium", "high", "max")


def _seconds(value: object) -> float | None:
    return None if value is None else parse_duration(value)


def _few(value: object) -> object:
    """Count messages before each is looked at; null is none."""
    return list_or_empty(few_messages(value))


def _images(value: object) -> tuple[Image, ...]:
    return () if value is None else images_in_base64(value)


def _one_or_more(value: object) -> object:
    """A single text is a list of one; null is none."""
    return [value] if isinstance(value, str) else list_or_empty(value)


def _think(value: object) -> bool | str | None:
    """Whether the model is to reason, or how much."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _LEVELS:
        return value
    raise ValueError(f"must be true, false, {', '.join(_LEVELS)}")


def _format(value: object) -> JsonObject | None:
    """The schema of the answer, None for free text."""
    if value is None or value == "":
        return None
    if value == "json":
        return {"type": "object"}
    if isinstance(value, dict):
        return cast(JsonObject, value)
    raise ValueError('must be "json" or a JSON schema')


Images: TypeAlias = Annotated[tuple[Image, ...], PlainValidator(_images)]


class WireCall(RequestModel):
    """A call in the history."""

    id: str | None = None
    function: WireFunctionCall


class WireMessage(RequestModel):
    """A message of any role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: Images = ()
    tool_calls: ListOrNull[WireCall] = Field(default_factory=list[WireCall])
    tool_name: Annotated[str | None, Field(validation_alias=AliasChoices("tool_name", "name"))] = (
        None
    )
    tool_call_id: str | None = None


class WireTool(RequestModel):
    """A tool on offer."""

    type: Literal["function"] | None = "function"
    function: WireFunction


class Options(SamplingFields):
    """`options`: sampling parameters; those that load a model are accepted without effect."""

    num_predict: Integer = None


class OllamaRequest(OwnControls):
    """The fields that chat and generate share."""

    model: Annotated[str, Field(min_length=1)]
    """A model on offer, which answers under this name."""
    stream: bool | None = None
    """Answer in lines of JSON, unless it is false."""
    think: Annotated[bool | str | None, PlainValidator(_think)] = None
    """Whether the model reasons; `low` to `max`: how much."""
    format: Annotated[JsonObject | None, PlainValidator(_format)] = None
    """`json`: the answer is an object; a JSON schema: it fits the schema."""
    options: Options | None = None
    """`num_predict` (tokens to generate at most), `stop`, `seed`, `temperature` and the other
    sampling parameters. Those that load a model, such as `num_ctx`, have no effect.
    """
    keep_alive: Annotated[
        float | None, PlainValidator(_seconds, json_schema_input_type=float | str | None)
    ] = None
    """How long the model stays loaded afterwards: seconds, or a text such as `5m`; 0 = it is
    unloaded, -1 = until its memory is needed.
    """
    logprobs: bool | None = None
    """Tell the log probability of each token of the content."""
    top_logprobs: Annotated[int | None, in_range("logprobs"), NUMBER] = None
    """Tell so many of the likeliest tokens too; `logprobs` must be true."""

    @property
    def parameters(self) -> Options:
        """The options, empty ones if the request has none."""
        return self.options or Options()

    def token_limit(self, default: int) -> int:
        """How many tokens may be generated; 0 is as many as fit."""
        return token_limit(self.parameters.num_predict, default)


class ChatRequest(OllamaRequest):
    """The body of `POST /api/chat`."""

    messages: Annotated[list[WireMessage], Field(fail_fast=True), BeforeValidator(_few)] = Field(
        default_factory=list[WireMessage]
    )
    """The conversation; images are in base64. Without messages the model is only loaded."""
    truncate: bool | None = None
    """true: if the conversation does not fit, its oldest turns leave, and the answer says how many
    messages did in `truncated_messages`. Otherwise it is refused.
    """
    tools: Tools[WireTool] = Field(default_factory=list[WireTool])
    """Functions on offer."""


class GenerateRequest(OllamaRequest):
    """The body of `POST /api/generate`."""

    prompt: str | None = None
    """The user's message; without one the model is only loaded."""
    system: str | None = None
    """Instructions to the model."""
    images: Images = ()
    """Images in base64."""
    raw: bool | None = None
    """The prompt goes to the model as it is, without a chat template."""
    suffix: str | None = None
    """The text behind the answer, if the model can fill gaps."""
    template: str | None = None
    """Not served."""
    context: Any = None
    """Not served; send the conversation to chat."""
    width: NotServed = None
    height: NotServed = None
    steps: NotServed = None


class ShowRequest(RequestModel):
    """The body of `POST /api/show`."""

    model: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("model", "name"))]
    """The model's name."""


class OllamaEmbedding(RequestModel):
    """The fields that both requests for vectors share."""

    model: Annotated[str, Field(min_length=1)]
    """The model's name."""
    options: Any = None
    """Accepted without effect."""
    keep_alive: Any = None
    """Accepted without effect."""


class EmbedBody(OllamaEmbedding):
    """The body of `POST /api/embed`."""

    input: Annotated[
        list[str], Field(max_length=MAX_INPUTS, fail_fast=True), BeforeValidator(_one_or_more)
    ] = Field(default_factory=list[str])
    """A text, or a list of texts."""
    truncate: bool | None = None
    """Texts that are too long lose their end, unless it is false."""
    dimensions: Annotated[int | None, Field(ge=0, le=MAX_DIMENSIONS, strict=True)] = None
    """Only so many numbers of each vector."""


class EmbeddingsBody(OllamaEmbedding):
    """The body of `POST /api/embeddings`."""

    prompt: str | None = None
    """The text."""


def plain_name(name: str, models: Models) -> str:
    """The name of a model as the server lists it, without the tag that Ollama's clients add."""
    listed = {info.id for info in models.listed()}
    return name if name in listed else name.removesuffix(":latest")
