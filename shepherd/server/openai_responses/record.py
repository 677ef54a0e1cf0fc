"""A response as the API shows it, from its creation to its end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shepherd.backends.base import Generation
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, log_failure, to_api_error
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.wire.answers import new_id, reasoning_tokens

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)
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
        return self not in (Status.QUEUED, Status.IN_PROGRESS)


def _now() -> int:
    return int(time.time())


@dataclass(slots=True)
class ResponseRecord:
    """The state of a response; `stored` says whether it can be used later.

    `truncated_items` are the ids of the items that left because the conversation did not fit.
    """

    request: ResponsesRequest
    model: str
    stored: bool = False
    id: str = field(default_factory=new_response_id)
    created: int = field(default_factory=_now)
    status: Status = Status.IN_PROGRESS
    output: Sequence[JsonObject] = ()
    usage: JsonObject | None = None
    error: ApiError | None = None
    completed: int | None = None
    truncated_items: list[str] = field(default_factory=list[str])

    def end(self, status: Status, output: Sequence[JsonObject]) -> None:
        """Note that the response is over."""
        self.status, self.output = status, [*output]
        if status is Status.COMPLETED:
            self.completed = _now()

    def fail(self, error: BaseException, output: Sequence[JsonObject]) -> None:
        """Note that the response has failed; a failure of the server is logged."""
        self.error = to_api_error(error)
        log_failure(error, self.error)
        self.end(Status.FAILED, output)

    def body(self) -> JsonObject:
        """The response object."""
        request = self.request
        body: JsonObject = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": self.completed,
            "status": self.status.value,
            "background": bool(request.background),
            "error": None if self.error is None else _error(self.error),
            "incomplete_details": self._incomplete(),
            "model": self.model,
            "output": list(self.output),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "reasoning": _reasoning(request),
            "service_tier": "default",
            "store": self.stored,
            "text": _text(request),
            "tool_choice": "auto" if request.tool_choice is None else request.tool_choice,
            "tools": [_tool(tool) for tool in request.tools or ()],
            "truncation": request.truncation or "disabled",
            "usage": self.usage,
        }
        body |= {name: getattr(request, name) for name in _ECHOED}
        return body | ({"truncated_items": self.truncated_items} if self.truncated_items else {})

    def _incomplete(self) -> JsonObject | None:
        return {"reason": "max_output_tokens"} if self.status is Status.INCOMPLETE else None


def _reasoning(request: ResponsesRequest) -> JsonObject:
    reasoning = request.reasoning
    effort = reasoning.effort if reasoning is not None else None
    return {"effort": effort, "summary": reasoning.summary_style if reasoning else None}


def _tool(tool: JsonObject) -> JsonObject:
    """A tool as it was sent; a function has each field that the published schema requires."""
    return {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool


def _text(request: ResponsesRequest) -> JsonObject:
    options = request.text
    text: JsonObject = {"format": (options.format if options else None) or {"type": "text"}}
    return text | ({"verbosity": options.verbosity} if options and options.verbosity else {})


def _error(error: ApiError) -> JsonObject:
    """The error of a failed response, whose codes are fewer than those of requests."""
    if error.code in _BUSY:
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if error.status < 500 else "server_error"
    return {"code": code, "message": error.message, "param": error.param, "type": error.code}


def usage_of(generation: Generation) -> JsonObject:
    """The usage object; the tokens of the reasoning are estimated."""
    stats = generation.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens(generation)},
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
    }
