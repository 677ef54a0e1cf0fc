"""Anthropic's messages."""

from collections.abc import Sequence
from typing import Any

from anthropic import AsyncAnthropic

from shepherd.backends.api.adapter import ApiRequest
from shepherd.messages import JsonObject
from tests.backends.api.anthropic.schema import check_event, check_request
from tests.backends.api.anthropic.streams import call, started, text, thought
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import check_turns, compact, halves, sse
from tests.backends.conformance.said import COMPLETION_TOKENS, PROMPT_TOKENS, Said, Understood
from tests.backends.conformance.wired import AdapterSubject


class AnthropicSubject(AdapterSubject):
    """Blocks by number, thoughts with their signatures."""

    name = "anthropic"
    type = "anthropic"
    model = "claude-sonnet-5-5"

    def frames(self, said: Said) -> Sequence[bytes]:
        blocks: list[list[JsonObject]] = []
        if said.thought:
            blocks.append(thought(0, "c2ln", *halves(said.thought)))
        if said.text:
            blocks.append(text(len(blocks), *said.text))
        for name, arguments in said.calls:
            place = len(blocks)
            blocks.append(call(place, f"toolu_{place}", name, *halves(compact(arguments))))
        events = [
            started(self.model, input_tokens=PROMPT_TOKENS),
            {"type": "ping"},
            *(event for block in blocks for event in block),
            *_ended("tool_use" if said.calls else "end_turn"),
        ]
        return [sse(check_event(event), event["type"]) for event in events]

    def overflow(self, prompt: int, limit: int) -> Reply:
        said = f"prompt is too long: {prompt} tokens > {limit} maximum"
        return Reply(_error("invalid_request_error", said), 400)

    def wrong_key(self) -> Reply:
        return Reply(_error("authentication_error", "invalid x-api-key"), 401)

    def unknown_model(self) -> Reply:
        return Reply(_error("not_found_error", f"model: {self.model}"), 404)

    def busy(self) -> Reply:
        said = "This request would exceed your organization's rate limit of 50 requests per minute"
        headers = {"retry-after": f"{self.busy_seconds:.0f}"}
        return Reply(_error("rate_limit_error", said), 429, headers)

    def down(self) -> Reply:
        return Reply(_error("overloaded_error", "Overloaded"), 529)

    def failing(self) -> bytes:
        return sse(_error("overloaded_error", "Overloaded"), "error")

    def check(self, request: Received) -> None:
        asked = ApiRequest(request.path, request.json, headers=request.headers)
        check_turns(check_request(asked)["messages"])

    async def official(self, url: str) -> Understood:
        async with AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
            asked: Any = {"model": self.model, "max_tokens": 100}
            asked["messages"] = [{"role": "user", "content": "hi"}]
            async with client.messages.stream(**asked) as stream:
                found = await stream.get_final_message()
        return Understood(
            "".join(b.text for b in found.content if b.type == "text"),
            "".join(b.thinking for b in found.content if b.type == "thinking"),
            tuple((b.name, dict(b.input)) for b in found.content if b.type == "tool_use"),
        )


def _ended(reason: str) -> list[JsonObject]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": COMPLETION_TOKENS}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _error(kind: str, text: str) -> JsonObject:
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
