"""Requests of the Ollama API, and what they mean; unknown fields are ignored."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from msgspec.structs import replace
from pydantic import AliasChoices, BeforeValidator, Field, PlainValidator, model_validator

from shepherd.backends.base import ModelInfo
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, Role, ToolCall
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid
from shepherd.server.models import Models
from shepherd.server.wire import fields
from shepherd.server.wire.content import CallHistory, images_in_base64
from shepherd.server.wire.embedding import MAX_DIMENSIONS, MAX_INPUTS
from shepherd.server.wire.sampling import SamplingFields
from shepherd.server.wire.tools import WireFunction, WireFunctionCall
from shepherd.session import Infill, OutputFormat, RawPrompt, Session

_LEVELS = ("low", "medium", "high", "max")
_INSTRUCTIONS = ("system", "developer")
_SHOWING = ("user", "tool")
"""The roles whose messages may have images."""


def _images(value: object) -> tuple[Image, ...]:
    """The images of a list in base64; null is none."""
    return () if value is None else images_in_base64(value)


def _one_or_more(value: object) -> object:
    """The texts of a field: a single one is a list of one, and null is none."""
    return [value] if isinstance(value, str) else fields.list_or_empty(value)


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
    tool_calls: fields.ListOrNull[WireCall] = Field(default_factory=list[WireCall])
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

    num_predict: fields.Integer = None


class OllamaRequest(fields.OwnControls):
    """The fields that chat and generate share."""

    ignored: ClassVar = frozenset(
        (
            *("temperature", "top_p", "max_tokens", "stop", "seed", "tool_choice"),
            *("frequency_penalty", "presence_penalty", "response_format"),
        )
    )  # clients that also speak to OpenAI send them; Ollama reads `options` alone

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
    keep_alive: fields.Seconds = None
    """How long the model stays loaded afterwards: seconds, or a text such as `5m`; 0 = it is
    unloaded, -1 = until its memory is needed.
    """
    logprobs: bool | None = None
    """Tell the log probability of each token of the content."""
    top_logprobs: Annotated[int | None, fields.in_range("logprobs"), fields.NUMBER] = None
    """Tell so many of the likeliest tokens too; `logprobs` must be true."""

    @property
    def parameters(self) -> Options:
        """The options, empty ones if the request has none."""
        return self.options or Options()

    def token_limit(self, default: int) -> int:
        """How many tokens may be generated; 0 is as many as fit."""
        return fields.token_limit(self.parameters.num_predict, default)


class ChatRequest(OllamaRequest):
    """The body of `POST /api/chat`."""

    messages: Annotated[fields.ListOrNull[WireMessage], BeforeValidator(fields.few_messages)] = (
        Field(default_factory=list[WireMessage])
    )
    """The conversation; images are in base64. Without messages the model is only loaded."""
    truncate: bool | None = None
    """true: if the conversation does not fit, its oldest turns leave, and the answer says how many
    messages did in `truncated_messages`. Otherwise it is refused.
    """
    tools: fields.Tools[WireTool] = Field(default_factory=list[WireTool])
    """Functions on offer."""


class GenerateRequest(OllamaRequest):
    """The body of `POST /api/generate`."""

    refused: ClassVar = {
        "template": "Use raw with a whole prompt.",
        "context": "Send the conversation to /api/chat.",
        **dict.fromkeys(("width", "height", "steps"), "This server makes no images."),
    }

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
    width: fields.NotServed = None
    height: fields.NotServed = None
    steps: fields.NotServed = None


class ShowRequest(RequestModel):
    """The body of `POST /api/show`."""

    model: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("model", "name"))]
    """The model's name."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, sent: JsonObject) -> JsonObject:
        """Ollama's client for Go sends both names, of which one is empty."""
        return {key: value for key, value in sent.items() if value != ""}


class PullRequest(ShowRequest):
    """The body of `POST /api/pull`."""

    stream: bool | None = None
    """Tell the progress in lines of JSON, unless it is false."""


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
    listed_names = {info.id for info in models.listed()}
    return name if name in listed_names else name.removesuffix(":latest")


def chat_session(request: ChatRequest, model: ModelInfo, *, thinking: bool) -> Session:
    """The conversation of a chat request; `thinking` is the default.

    If the assistant has the last word, the answer continues it where the model can. Raises
    ApiError.
    """
    for index, message in enumerate(request.messages):
        where = f"messages.{index}.images"
        fields.check_images(message.images, model, where)
        if message.images and message.role not in _SHOWING:
            raise invalid(where, "images go with messages of the user and of tools")
    system = [m.content for m in request.messages if m.role in _INSTRUCTIONS and m.content]
    messages = _conversation(request.messages)
    return replace(
        _without_messages(request, thinking=thinking),
        system_message="\n\n".join(system),
        messages=messages,
        tools=[tool.function.to_spec() for tool in request.tools],
        continues=fields.can_continue(messages, model),
    )


def generate_session(request: GenerateRequest, model: ModelInfo, *, thinking: bool) -> Session:
    """The session of a generate request; raises ApiError."""
    if request.raw or request.suffix:  # such a prompt has no instructions and no messages
        plain_field = "raw" if request.raw else "suffix"
        for name, sent in (("system", request.system), ("images", request.images)):
            if sent:
                raise invalid(name, f"not with {plain_field}")
    fields.check_images(request.images, model, "images")
    session = _without_messages(request, thinking=thinking)
    prompt = request.prompt or ""
    if request.suffix:
        return replace(session, raw_prompt=Infill(prompt, request.suffix))
    if request.raw:
        return replace(session, raw_prompt=RawPrompt((prompt,)))
    messages = [Message.user(prompt, request.images)]
    return replace(session, system_message=request.system or "", messages=messages)


def _without_messages(request: OllamaRequest, *, thinking: bool) -> Session:
    """How a request is answered; raises ApiError where two parameters do not fit together."""
    logprobs = fields.logprob_count(requested=request.logprobs, top=request.top_logprobs)
    options, think = request.parameters, request.think
    sampling = replace(options.to_sampling(), logprobs=logprobs)
    if options.seed is not None and options.seed < 0:  # Ollama's word for a random one
        sampling = replace(sampling, seed=None)
    return Session(
        sampling=sampling,
        thinking=thinking if think is None else bool(think),
        thinking_effort=fields.effort_named(think if isinstance(think, str) else None),
        output_format=None if request.format is None else OutputFormat(request.format),
    )


def _conversation(wire: Sequence[WireMessage]) -> list[Message]:
    """The messages without instructions; results find their calls by id, name or order."""
    history = CallHistory()
    messages: list[Message] = []
    for message in wire:
        content = message.content or ""
        match message.role:
            case "system" | "developer":  # they are in the system message
                continue
            case "user":
                messages.append(Message.user(content, message.images))
            case "assistant":
                calls = tuple(
                    ToolCall(
                        call.id or history.next_id(), call.function.name, call.function.arguments
                    )
                    for call in message.tool_calls
                )
                history.add(calls)
                messages.append(Message.assistant(content, message.thinking or "", calls))
            case "tool":
                call_id, name = history.answered(
                    message.tool_call_id or "", message.tool_name or ""
                )
                images = message.images
                messages.append(
                    Message(Role.TOOL, content, tool_call_id=call_id, name=name, images=images)
                )
    return messages
