"""Requests of the chat completions API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from shepherd.server.body import RequestModel
from shepherd.server.openai.tools import WireTool, WireToolCall
from shepherd.server.wire.content import Content, content_of
from shepherd.server.wire.fields import (
    Events,
    GrammarFields,
    ListOrNull,
    ModelName,
    NotServed,
    StreamOptions,
    Tools,
    few_messages,
    refuse_unsupported,
)
from shepherd.server.wire.sampling import SamplingFields
from shepherd.server.wire.translation import token_limit


def _token_limit(value: int | None) -> int | None:
    if value == 0:
        raise ValueError("must be at least 1, or -1 for as many as fit")
    return value


TokenLimit = Annotated[int | None, Field(ge=-1), AfterValidator(_token_limit)]


class WireMessage(RequestModel):
    """A message of any role."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[Content, PlainValidator(content_of)] = Content()
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: ListOrNull[WireToolCall] = Field(default_factory=list[WireToolCall])
    tool_call_id: str | None = None
    name: str | None = None


class TemplateOptions(RequestModel):
    """Options for the chat template; other names are variables of the model's own template."""

    model_config = ConfigDict(extra="allow")

    enable_thinking: Annotated[
        bool | None,
        Field(
            validation_alias=AliasChoices("enable_thinking", "thinking"),
            description="Whether the model reasons.",
        ),
    ] = None

    @property
    def values(self) -> dict[str, object]:
        """The variables besides `enable_thinking`; null means that one is not set."""
        extra: dict[str, object] = self.model_extra or {}
        return {name: value for name, value in extra.items() if value is not None}


_OF_OTHER_SERVERS = {
    "chat_template": "The model's own template is used.",
    "documents": "Put the documents into a message.",
    "echo": "The answer never repeats the last message.",
}


class ChatRequest(SamplingFields, GrammarFields):
    """The body of `POST /v1/chat/completions`."""

    model: ModelName = None
    messages: Annotated[
        list[WireMessage],
        Field(
            min_length=1,
            fail_fast=True,
            description="The conversation; system messages are merged, images are `data:` URLs.",
        ),
        BeforeValidator(few_messages),
    ]
    tools: Annotated[
        Tools[WireTool],
        Field(description="Functions and custom tools on offer."),
    ] = Field(default_factory=list[WireTool])
    tool_choice: Annotated[
        Any,
        Field(
            description="`auto`; `none`: the tools are not offered; `required`: the answer is "
            "calls; a tool's name: it is one call of it; `allowed_tools`: only these are offered."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="false: at most one call in an answer.")
    ] = None
    stream: Events = None
    stream_options: Annotated[
        StreamOptions | None,
        Field(description="`include_usage`: a stream ends with a chunk that has the usage."),
    ] = None
    max_completion_tokens: Annotated[
        TokenLimit, Field(description="Tokens to generate at most; none or -1: as many as fit.")
    ] = None
    max_tokens: Annotated[
        TokenLimit,
        Field(
            validation_alias=AliasChoices("max_tokens", "n_predict"),
            description="The older name of the same, also `n_predict`.",
        ),
    ] = None
    reasoning_effort: Annotated[
        str | None,
        Field(
            description="`none`: the model does not reason; `minimal` to `xhigh`: how much it does."
        ),
    ] = None
    thinking_budget_tokens: Annotated[
        int | None,
        Field(
            ge=-1,
            validation_alias=AliasChoices("thinking_budget_tokens", "reasoning_budget_tokens"),
            description="The most tokens of reasoning, also `reasoning_budget_tokens`; -1: no "
            "limit.",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        TemplateOptions | None,
        Field(
            description="`enable_thinking`: whether the model reasons; outweighs the effort. Other "
            "names are variables of the chat template of a model in this process."
        ),
    ] = None
    n: Annotated[
        int | None,
        Field(ge=1, description="Answers to give, each with its own seed; `server.max_choices`."),
    ] = None
    response_format: Annotated[
        Any,
        Field(
            description="`text`; `json_object`: any JSON object; `json_schema`: JSON that fits the "
            "schema, with `strict` refused if a part of it can't be enforced."
        ),
    ] = None
    continue_final_message: Annotated[
        bool | Literal["content", "reasoning_content"] | None,
        Field(
            description="The answer continues the last message, which is the assistant's. Only "
            "models in this process can."
        ),
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Field(description="false: only with `continue_final_message`.")
    ] = None
    return_progress: Annotated[
        bool | None, Field(description="A stream tells in `prompt_progress` how far the prompt is.")
    ] = None
    timings_per_token: Annotated[
        bool | None, Field(description="Each chunk of a stream has `timings`.")
    ] = None
    verbose: Annotated[
        bool | None, Field(description="`__verbose.prompt` is the prompt as the model reads it.")
    ] = None
    service_tier: Annotated[
        str | None, Field(description="Accepted; the answer says `default`.")
    ] = None
    prediction: Annotated[Any, Field(description="Accepted; drafts come from the prompt.")] = None
    verbosity: Annotated[Any, Field(description="Accepted.")] = None
    metadata: Annotated[Any, Field(description="Accepted.")] = None
    functions: Annotated[Any, Field(description="Not served; use `tools`.")] = None
    function_call: Annotated[Any, Field(description="Not served; use `tool_choice`.")] = None
    modalities: Annotated[Any, Field(description='Only `["text"]`.')] = None
    audio: NotServed = None
    web_search_options: Annotated[Any, Field(description="Not served; use `tools`.")] = None

    @model_validator(mode="before")
    @classmethod
    def _served_in_chat(cls, value: Any) -> object:
        """Refuse fields of other servers that would change the prompt or the answer."""
        if isinstance(value, dict):
            refuse_unsupported(cast(dict[str, Any], value), _OF_OTHER_SERVERS)
        return cast(object, value)

    def token_limit(self, default: int = 0) -> int:
        """The maximum of generated tokens; 0 is as many as fit."""
        return token_limit(self.max_completion_tokens or self.max_tokens, default)
