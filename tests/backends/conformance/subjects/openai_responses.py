"""OpenAI's responses API."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from openai import AsyncOpenAI

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.connect import adapter_for
from shepherd.messages import JsonObject
from tests.backends.api.openai.official import event, response, valid_responses
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import check_items, compact, halves, sse
from tests.backends.conformance.said import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    SHORT,
    Said,
    Understood,
)
from tests.backends.conformance.subjects.openai_chat import ChatSubject, error

_FULL = "Your input exceeds the context window of this model. Please adjust your input."


class ResponsesSubject(ChatSubject):
    """Every item and part is opened, streamed and closed; a full context ends a stream that began
    with status 200."""

    name = "openai-responses"
    type = "openai-responses"
    model = "gpt-5"
    open_until = -1
    recorded = SHORT.silent
    lacks: ClassVar = {}

    def adapter(self, url: str) -> Adapter:
        return adapter_for(self.type, "", model=self.model)

    def frames(self, said: Said) -> Sequence[bytes]:
        events = [event("response.created", response=response("in_progress", []))]
        items: list[JsonObject] = []
        for told in (_thought(said), _message(said), *_calls(said)):
            if told:
                place = len(items)
                streamed: list[JsonObject] = [e | {"output_index": place} for e in told[1:]]
                items.append(told[0])
                opened = told[0] | _EMPTY[told[0]["type"]]
                events.append(event("response.output_item.added", output_index=place, item=opened))
                events += [event(e.pop("type"), **e) for e in streamed]
                events.append(event("response.output_item.done", output_index=place, item=told[0]))
        ended = response("completed", items, usage=_USAGE)
        events.append(event("response.completed", response=ended))
        return [sse(e, e["type"]) for e in events]

    def overflow(self, prompt: int, limit: int) -> Reply:
        told = {"code": "context_length_exceeded", "message": _FULL, "param": "input"}
        return self.reply(sse(event("error", **told), "error"))

    def failing(self) -> bytes:
        text = "An error occurred while processing your request."
        return sse({"type": "error", **error(text, kind="server_error")}, "error")

    def check(self, request: Received) -> None:
        assert request.path.endswith("/responses")
        check_items(valid_responses(request.json)["input"])

    async def official(self, url: str) -> Understood:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            responses: Any = client.responses
            async with responses.stream(model=self.model, input="hi") as stream:
                found = await stream.get_final_response()
        thought = "".join(s.text for i in found.output if i.type == "reasoning" for s in i.summary)
        calls = [(i.name, i.arguments) for i in found.output if i.type == "function_call"]
        return Understood.from_texts(found.output_text, thought, calls)


_USAGE: JsonObject = {
    "input_tokens": PROMPT_TOKENS,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": COMPLETION_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
}
_EMPTY: dict[str, JsonObject] = {
    "reasoning": {"summary": []},
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
}
"""What an item has not when it is opened."""


def _thought(said: Said) -> list[JsonObject]:
    """The item as it is in the end, and the events that make it."""
    if not said.thought:
        return []
    where = {"item_id": "rs", "summary_index": 0}
    part = {"type": "summary_text", "text": said.thought}
    item = {"type": "reasoning", "id": "rs", "summary": [part], "encrypted_content": "gAAA"}
    pieces = [
        {"type": "response.reasoning_summary_text.delta", "delta": piece, **where}
        for piece in halves(said.thought)
    ]
    opened = {"type": "response.reasoning_summary_part.added", **where, "part": part | {"text": ""}}
    return [item, opened, *pieces]


def _message(said: Said) -> list[JsonObject]:
    if not said.text:
        return []
    where = {"item_id": "m", "content_index": 0}
    part: JsonObject = {"type": "output_text", "text": said.content, "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    pieces: list[JsonObject] = [
        {"type": "response.output_text.delta", "delta": piece, "logprobs": [], **where}
        for piece in said.text
    ]
    opened = {"type": "response.content_part.added", **where, "part": part | {"text": ""}}
    return [item | {"content": [part]}, opened, *pieces]


def _calls(said: Said) -> Iterator[list[JsonObject]]:
    for index, (name, arguments) in enumerate(said.calls):
        text, own = compact(arguments), f"f{index}"
        item = {"type": "function_call", "id": own, "call_id": f"call_{index}", "name": name}
        pieces = [
            {"type": "response.function_call_arguments.delta", "delta": piece, "item_id": own}
            for piece in halves(text)
        ]
        yield [item | {"arguments": text, "status": "completed"}, *pieces]
