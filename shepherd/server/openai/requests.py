"""Requests of the chat completions API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, ClassVar, Literal, cast

import pydantic

from shepherd.json_text import as_object
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.body import RequestModel
from shepherd.server.wire import fields, sampling, tools
from shepherd.server.wire.content import Content, content_of


def _token_limit(value: int | None) -> int | None:
    """A limit of an answer in tokens; raises ValueError for 0, which allows no answer."""
    if value == 0:
        raise ValueError("must be at least 1, or -1 for as many as fit")
    return value


TokenLimit = Annotated[int | None, pydantic.Field(ge=-1), pydantic.AfterValidator(_token_limit)]


class WireCustomCall(RequestModel):
    """The custom tool of a replayed call, and the text that the model sent to it."""

    name: Annotated[str, pydantic.Field(min_length=1)]
    input: str = ""


class WireToolCall(RequestModel):
    """A call in the history: of a function or of a custom tool."""

    id: str | None = None
    function: tools.WireFunctionCall | None = None
    custom: WireCustomCall | None = None

    @pydantic.model_validator(mode="after")
    def _check_kind(self) -> "WireToolCall":
        """Refuse a call of neither kind, or of both, with the request that has it."""
        self.to_call(default_id="")  # raises ValueError
        return self

    def to_call(self, default_id: str) -> ToolCall:
        """The call, with `default_id` if it has no id; raises ValueError unless it has one kind."""
        call_id = self.id or default_id
        match self.function, self.custom:
            case tools.WireFunctionCall(name=name, arguments=arguments), None:
                return ToolCall(call_id, name, arguments)
            case None, WireCustomCall(name=name, input=text):
                return ToolCall(call_id, name, {tools.CUSTOM_INPUT: text})
            case _:
                raise ValueError("a call needs either 'function' or 'custom'")


def _flat_format(value: object) -> object:
    """A grammar stands in an object of its own in this API, and beside the type in others."""
    sent = as_object(value)
    grammar = sent.get("grammar")
    if not isinstance(grammar, dict):
        return value
    return {**sent, **cast(JsonObject, grammar)}


class WireCustom(tools.CustomTool):
    """A custom tool on offer, whose input is text."""

    format: Annotated[tools.CustomFormat | None, pydantic.BeforeValidator(_flat_format)] = None


class WireTool(RequestModel):
    """A tool on offer; the fields of a function or custom tool may also stand beside the type.

    One of any other type runs at a vendor only.
    """

    type: Annotated[str, pydantic.Field(max_length=256)] = "function"
    function: tools.WireFunction | None = None
    custom: WireCustom | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _nested(cls, value: object) -> object:
        """Put the fields of a tool that stand beside the type into an object of their own."""
        sent = as_object(value)
        kind = sent.get("type", "function")
        if "name" in sent and kind in ("function", "custom") and kind not in sent:
            return {"type": kind, kind: sent}
        return value

    @pydantic.model_validator(mode="after")
    def _check_kind(self) -> "WireTool":
        """Refuse a tool without the fields of its type, with the request that has it."""
        if self.is_served:
            _ = self.tool  # raises ValueError
        return self

    @property
    def is_served(self) -> bool:
        """Whether a model can be offered it."""
        return self.type in ("function", "custom")

    @property
    def tool(self) -> tools.WireFunction | WireCustom:
        """The function or custom tool, as `type` says; raises ValueError if it is missing."""
        tool = self.custom if self.type == "custom" else self.function
        if tool is None:
            raise ValueError(f"a tool of type {self.type!r} needs {self.type!r}")
        return tool


class WireMessage(RequestModel):
    """A message of any role."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[Content, pydantic.PlainValidator(content_of)] = pydantic.Field(
        default=None, validate_default=True
    )
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: fields.ListOrNull[WireToolCall] = pydantic.Field(default_factory=list[WireToolCall])
    tool_call_id: str | None = None
    name: str | None = None


class TemplateOptions(RequestModel):
    """Options for the chat template; other names are variables of the model's own template."""

    model_config = pydantic.ConfigDict(extra="allow")

    enable_thinking: Annotated[
        bool | None,
        pydantic.Field(validation_alias=pydantic.AliasChoices("enable_thinking", "thinking")),
    ] = None
    """Whether the model reasons."""

    @property
    def values(self) -> dict[str, object]:
        """The variables besides `enable_thinking`; null means that one is not set."""
        variables: dict[str, object] = self.model_extra or {}
        return {name: value for name, value in variables.items() if value is not None}


class ChatRequest(
    sampling.SamplingFields, fields.GrammarFields, fields.TelemetryFields, fields.SlotField
):
    """The body of `POST /v1/chat/completions`."""

    refused: ClassVar = {
        "chat_template": "The model's own template is used.",
        "documents": "Put the documents into a message.",
        "echo": "The answer never repeats the last message.",
        "audio": "Only text is served.",
    }

    model: fields.ModelName = None
    messages: Annotated[
        list[WireMessage],
        pydantic.Field(min_length=1, fail_fast=True),
        pydantic.BeforeValidator(fields.few_messages),
    ]
    """The conversation; system messages are merged, images are `data:` URLs."""
    tools: fields.Tools[WireTool] = pydantic.Field(default_factory=list[WireTool])
    """Functions and custom tools on offer."""
    tool_choice: Any = None
    """`auto`; `none`: the tools are not offered; `required`: the answer is calls; a tool's name: it
    is one call of it; `allowed_tools`: only these are offered.
    """
    parallel_tool_calls: bool | None = None
    """false: at most one call in an answer."""
    stream: fields.Events = None
    stream_options: fields.StreamOptions | None = None
    """`include_usage`: a stream ends with a chunk that has the usage."""
    max_completion_tokens: TokenLimit = None
    """Tokens to generate at most; none or -1: as many as fit."""
    max_tokens: Annotated[
        TokenLimit,
        pydantic.Field(validation_alias=pydantic.AliasChoices("max_tokens", "n_predict")),
    ] = None
    """The older name of the same, also `n_predict`."""
    reasoning_effort: str | None = None
    """`none`: the model does not reason; `minimal` to `xhigh`: how much it does."""
    thinking_budget_tokens: Annotated[
        int | None,
        pydantic.Field(
            ge=-1,
            validation_alias=pydantic.AliasChoices(
                "thinking_budget_tokens", "reasoning_budget_tokens"
            ),
        ),
    ] = None
    """The most tokens of reasoning, also `reasoning_budget_tokens`; -1: no limit."""
    chat_template_kwargs: TemplateOptions | None = None
    """`enable_thinking`: whether the model reasons; outweighs the effort. Other names are variables
    of the chat template of a model in this process.
    """
    n: Annotated[int | None, pydantic.Field(ge=1)] = None
    """Answers to give, each with its own seed; `server.max_choices`."""
    response_format: Any = None
    """`text`; `json_object`: any JSON object; `json_schema`: JSON that fits the schema, with
    `strict` refused if a part of it can't be enforced.
    """
    continue_final_message: bool | Literal["content", "reasoning_content"] | None = None
    """The answer continues the last message, which is the assistant's; so it does without this
    field, unless it is false. Only models in this process can.
    """
    add_generation_prompt: bool | None = None
    """true: the answer is a new message; false: only with `continue_final_message`."""
    verbose: bool | None = None
    """`__verbose.prompt` is the prompt as the model reads it."""
    service_tier: str | None = None
    """Accepted; the answer says `default`."""
    prediction: Any = None
    """Accepted; drafts come from the prompt."""
    verbosity: Any = None
    """Accepted."""
    metadata: Any = None
    """Accepted."""
    functions: Any = None
    """Not served; use `tools`."""
    function_call: Any = None
    """Not served; use `tool_choice`."""
    modalities: Any = None
    """Only `["text"]`."""
    audio: fields.NotServed = None
    web_search_options: Any = None
    """Not served; use `tools`."""

    @property
    def template_values(self) -> dict[str, object]:
        """The variables of the chat template that the request sets."""
        return self.chat_template_kwargs.values if self.chat_template_kwargs else {}

    def token_limit(self, default: int = 0) -> int:
        """The maximum of generated tokens; 0 is as many as fit."""
        return fields.token_limit(self.max_completion_tokens or self.max_tokens, default)
