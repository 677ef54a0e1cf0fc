"""Requests of the Responses API: lenient, unknown fields are ignored."""

import time
from collections.abc import Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct, field
from pydantic import AfterValidator, Field

from shepherd import messages, sampling
from shepherd.backends.base import Generation
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, log_failure, to_api_error
from shepherd.server.wire.answers import new_id, reasoning_tokens
from shepherd.server.wire.fields import (
    Events,
    ListOrNull,
    ModelName,
    NotServed,
    TelemetryFields,
    Tools,
    as_nearest,
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


def _short_metadata(value: dict[str, str] | None) -> dict[str, str] | None:
    """The metadata, which is kept with the response; raises ValueError for too much of it."""
    if value is None:
        return None
    if len(value) > MAX_METADATA:
        raise ValueError(f"takes at most {MAX_METADATA} pairs")
    for key, text in value.items():
        if len(key) > MAX_METADATA_KEY or len(text) > MAX_METADATA_VALUE:
            raise ValueError(
                f"takes keys of at most {MAX_METADATA_KEY} characters and values of at most "
                f"{MAX_METADATA_VALUE}"
            )
    return value


def _known_includes(value: list[str]) -> list[str]:
    """The names of what the answer includes; raises ValueError for an unknown one."""
    for name in value:
        if name not in INCLUDABLE:
            raise ValueError(f"{name!r} is not one of {', '.join(INCLUDABLE)}")
    return value


Summary = Annotated[
    Literal["auto", "concise", "detailed"] | None, as_nearest("auto", "concise", "detailed")
]


class Reasoning(RequestModel):
    """Whether the model reasons, and how the reasoning is shown."""

    effort: str | None = None
    summary: Summary = None
    generate_summary: Summary = None

    @property
    def summary_style(self) -> str | None:
        """The style of the summary under either of its names, None for no summary."""
        return self.summary or self.generate_summary


class TextOptions(RequestModel):
    """The form of the answer."""

    format: Any = None
    verbosity: str | None = None


class ResponsesRequest(SamplingFields, TelemetryFields):
    """The body of `POST /v1/responses`."""

    refused: ClassVar = {
        "messages": "Use input.",
        "logprobs": f"Use include with {LOGPROBS}.",
        "max_tokens": "Use max_output_tokens.",
        "max_completion_tokens": "Use max_output_tokens.",
        "reasoning_effort": "Use reasoning.effort.",
        "response_format": "Use text.format.",
        "json_schema": "Use text.format.",
        "grammar": "Use text.format, or a custom tool with a grammar.",
        "functions": "Use tools.",
        "function_call": "Use tool_choice.",
        "chat_template_kwargs": "Use reasoning.effort.",
        "continue_final_message": "Answers are always new items.",
        "audio": "Only text is served.",
        "conversation": "Conversations are not stored here; use previous_response_id.",
        "prompt": "Prompt templates are not stored; send the text as instructions or input.",
        "moderation": "Nothing is moderated here.",
        "context_management": "Nothing is compacted here; truncation `auto` shortens it.",
    }

    model: ModelName = None
    input: Any = None
    """A text, or a list of items: messages, calls, results, reasoning."""
    instructions: str | None = None
    """System message before all others; not kept for later."""
    previous_response_id: str | None = None
    """A stored response, whose conversation is continued."""
    tools: Tools[messages.JsonObject] = Field(default_factory=list[messages.JsonObject])
    """`function`, `custom`, `namespace` with some of both, and those that clients run: `shell`,
    `local_shell`, `apply_patch`. Tools that only OpenAI runs are left out, here and in the answer.
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

    def to_sampling(self) -> sampling.Sampling:
        """The parameters that the request sets; `include` says whether log probabilities come."""
        requested = LOGPROBS in self.include
        # the chat API, whose fields these are, refuses `top_logprobs` without `logprobs`
        fields = {"logprobs": requested, "top_logprobs": self.top_logprobs if requested else None}
        return super(ResponsesRequest, self.model_copy(update=fields)).to_sampling()


_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
_UNKNOWN = sampling.Sampling(temperature=1.0, top_p=1.0, penalty_freq=0.0, penalty_present=0.0)
"""OpenAI's defaults, for a model whose own are not known."""
_BUSY = ("server_busy", "provider_busy")

RESPONSE_ID = "response_id"
"""The name of the id of the new response in a request's state, where a router has chosen it."""


def new_response_id() -> str:
    """The id of a new response."""
    return new_id("resp_", 32)


class Status(StrEnum):
    """How far a response is."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the response does not change any more."""
        return self not in (Status.QUEUED, Status.IN_PROGRESS)


def _now() -> int:
    return int(time.time())


class ResponseRecord(Struct):
    """The state of a response; `stored` says whether it can be used later.

    `created` and `completed` are Unix times. `truncated_items` are the ids of the items that left
    because the conversation did not fit. `in_force` are the parameters that hold, once a model
    answers that tells them. `left_out` are the types of tools that no model was offered.
    """

    request: ResponsesRequest
    model: str
    stored: bool = False
    id: str = field(default_factory=new_response_id)
    created: int = field(default_factory=_now)
    status: Status = Status.IN_PROGRESS
    output: Sequence[messages.JsonObject] = ()
    usage: messages.JsonObject | None = None
    error: ApiError | None = None
    completed: int | None = None
    truncated_items: list[str] = field(default_factory=list[str])
    in_force: sampling.Sampling | None = None
    left_out: Sequence[str] = ()

    def end(self, status: Status, output: Sequence[messages.JsonObject]) -> None:
        """Note that the response is over."""
        self.status, self.output = status, [*output]
        if status is Status.COMPLETED:
            self.completed = _now()

    def fail(self, error: BaseException, output: Sequence[messages.JsonObject]) -> None:
        """Note that the response has failed; a failure of the server is logged."""
        self.error = to_api_error(error)
        log_failure(error, self.error)
        self.end(Status.FAILED, output)

    def body(self) -> messages.JsonObject:
        """The response object."""
        request = self.request
        is_incomplete = self.status is Status.INCOMPLETE
        reasoning = request.reasoning or Reasoning()
        in_force = (self.in_force or request.to_sampling()).over(_UNKNOWN)
        body: messages.JsonObject = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": self.completed,
            "status": self.status.value,
            "background": bool(request.background),
            "error": None if self.error is None else _error(self.error),
            "frequency_penalty": in_force.penalty_freq,
            "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
            "model": self.model,
            "output": list(self.output),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "presence_penalty": in_force.penalty_present,
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary_style},
            "service_tier": "default",
            "store": self.stored,
            "temperature": in_force.temperature,
            "text": _text(request),
            "tool_choice": "auto" if request.tool_choice is None else request.tool_choice,
            "tools": [_tool(t) for t in request.tools if t.get("type") not in self.left_out],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": in_force.top_p,
            "truncation": request.truncation or "disabled",
            "usage": self.usage,
        }
        body |= {name: getattr(request, name) for name in _ECHOED}
        return body | ({"truncated_items": self.truncated_items} if self.truncated_items else {})


def _tool(tool: messages.JsonObject) -> messages.JsonObject:
    """A tool as it was sent; a function has each field that the published schema requires."""
    return {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool


def _text(request: ResponsesRequest) -> messages.JsonObject:
    """The form of the answer, also where the request leaves it to the server."""
    options = request.text or TextOptions()
    text: messages.JsonObject = {"format": options.format or {"type": "text"}}
    return text | ({"verbosity": options.verbosity} if options.verbosity else {})


def _error(error: ApiError) -> messages.JsonObject:
    """The error of a failed response, whose codes are fewer than those of requests."""
    if error.code in _BUSY:  # by which clients know that they may try again
        code = "rate_limit_exceeded"
    elif error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        code = "invalid_prompt"
    else:
        code = "server_error"
    return {"code": code, "message": error.message, "param": error.param, "type": error.code}


def usage_of(generation: Generation) -> messages.JsonObject:
    """The usage object; the tokens of the reasoning are estimated."""
    stats = generation.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens(generation)},
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
    }
