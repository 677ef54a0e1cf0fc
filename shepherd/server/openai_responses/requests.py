"""Requests of the Responses API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from shepherd.messages import JsonObject
from shepherd.sampling import Sampling
from shepherd.server.body import RequestModel
from shepherd.server.errors import unsupported
from shepherd.server.wire.fields import (
    Events,
    ListOrNull,
    ModelName,
    NotServed,
    Tools,
    refuse_unsupported,
)
from shepherd.server.wire.sampling import SamplingFields

MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"
INCLUDABLE = (
    LOGPROBS,
    ENCRYPTED_REASONING,
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
)
"""What `include` may name; what is of tools that only OpenAI runs never occurs here."""

_UNSUPPORTED = {
    "conversation": "Conversations are not stored here; use previous_response_id.",
    "prompt": "Prompt templates are not stored here; send the text as instructions or input.",
    "moderation": "Nothing is moderated here.",
    "context_management": "Conversations are not compacted here; truncation `auto` shortens them.",
}
_ELSEWHERE = {
    "messages": "Use input.",
    "logprobs": f"Use include with {LOGPROBS}.",
    "max_tokens": "Use max_output_tokens.",
    "max_completion_tokens": "Use max_output_tokens.",
    "reasoning_effort": "Use reasoning.effort.",
    "response_format": "Use text.format.",
    "json_schema": "Use text.format.",
    "grammar": "Use text.format, or a custom tool with a regular expression.",
    "functions": "Use tools.",
    "function_call": "Use tool_choice.",
    "chat_template_kwargs": "Use reasoning.effort.",
    "continue_final_message": "Answers are always new items.",
    "audio": "Only text is served.",
}
"""Fields of other APIs, which would change the answer."""


def _short_metadata(value: dict[str, str] | None) -> dict[str, str] | None:
    if value is None:
        return None
    if len(value) > MAX_METADATA:
        raise ValueError(f"takes at most {MAX_METADATA} pairs")
    if any(len(k) > MAX_METADATA_KEY or len(v) > MAX_METADATA_VALUE for k, v in value.items()):
        raise ValueError(
            f"takes keys of at most {MAX_METADATA_KEY} characters and values of at most "
            f"{MAX_METADATA_VALUE}"
        )
    return value


def _known_includes(value: list[str]) -> list[str]:
    for name in value:
        if name not in INCLUDABLE:
            raise ValueError(f"{name!r} is not one of {', '.join(INCLUDABLE)}")
    return value


class Reasoning(RequestModel):
    """Whether the model reasons, and how the reasoning is shown."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None

    @property
    def summary_style(self) -> str | None:
        """The style of the summary under either of its names, None for no summary."""
        return self.summary or self.generate_summary


class TextOptions(RequestModel):
    """The form of the answer."""

    format: Any = None
    verbosity: str | None = None


class ResponsesRequest(SamplingFields):
    """The body of `POST /v1/responses`."""

    model: ModelName = None
    input: Any = None
    """A text, or a list of items: messages, calls, results, reasoning."""
    instructions: str | None = None
    """System message before all others; not kept for later."""
    previous_response_id: str | None = None
    """A stored response, whose conversation is continued."""
    tools: Tools[JsonObject] = Field(default_factory=list[JsonObject])
    """`function`, `custom`, and `namespace` with some of both; tools that only OpenAI runs are left
    out.
    """
    tool_choice: Any = None
    """`auto`, `none`, `required`, one function or custom tool, or `allowed_tools`."""
    parallel_tool_calls: bool | None = None
    """false: at most one call in an answer."""
    text: TextOptions | None = None
    """`format`: `text`, `json_object` or `json_schema`."""
    reasoning: Reasoning | None = None
    """`effort`: `none`, the model does not reason; anything else: it does. `summary`: the reasoning
    comes as a summary, in full.
    """
    truncation: Literal["auto", "disabled"] | None = None
    """`auto`: the oldest turns leave when the conversation does not fit."""
    conversation: NotServed = None
    prompt: NotServed = None
    moderation: NotServed = None
    context_management: NotServed = None
    stream: Events = None
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    """Tokens to generate at most; none: as many as fit."""
    max_tool_calls: Annotated[int | None, Field(ge=1)] = None
    """Accepted: no tool runs on the server."""
    store: bool | None = None
    """false: the response can't be used later."""
    background: bool | None = None
    """Answer at once, and generate while no client waits."""
    include: Annotated[
        ListOrNull[str],
        AfterValidator(_known_includes),
        Field(
            max_length=100,
            description=f"More in the answer: `{LOGPROBS}` with log "
            f"probabilities; `{ENCRYPTED_REASONING}` always comes.",
        ),
    ] = Field(default_factory=list[str])
    metadata: Annotated[dict[str, str] | None, AfterValidator(_short_metadata)] = None
    """Up to 16 texts, which come back with the response."""
    prompt_cache_key: str | None = None
    """Comes back; has no effect."""
    safety_identifier: str | None = None
    """Comes back."""
    service_tier: str | None = None
    """Comes back as `default`."""
    user: str | None = None
    """Comes back."""

    @model_validator(mode="before")
    @classmethod
    def _of_this_api(cls, value: Any) -> object:
        """Refuse fields of other APIs, which would be ignored."""
        if isinstance(value, dict):
            refuse_unsupported(cast(dict[str, Any], value), _ELSEWHERE)
        return cast(object, value)

    def check_supported(self) -> None:
        """Raise ApiError for parameters that would change the answer and are not supported."""
        for name, message in _UNSUPPORTED.items():
            if getattr(self, name) not in (None, []):
                raise unsupported(name, message)

    def to_sampling(self) -> Sampling:
        """The parameters that the request sets; `include` says whether log probabilities come."""
        requested = LOGPROBS in self.include
        fields = {
            "logprobs": requested,
            "top_logprobs": self.top_logprobs if requested else None,
        }
        return super(ResponsesRequest, self.model_copy(update=fields)).to_sampling()
