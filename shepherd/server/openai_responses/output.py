"""The items of an answer and their events, as the text comes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from shepherd.backends.base import Generation
from shepherd.events import CallbackEvent
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.openai_responses.items import new_id
from shepherd.server.openai_responses.tools import Toolset
from shepherd.server.wire.answers import token_logprobs
from shepherd.server.wire.custom_tools import custom_input

Event: TypeAlias = tuple[str, JsonObject]
"""The type of an event, and its fields without the sequence number."""

Seal: TypeAlias = Callable[[JsonObject], str]
"""Signs the content of a reasoning item, for the client to send back."""

COMPLETED, IN_PROGRESS, INCOMPLETE = "completed", "in_progress", "incomplete"


class ReasoningView(Enum):
    """How the client sees the reasoning: as a summary, as it is, or only signed."""

    SUMMARY = "summary"
    TEXT = "text"
    HIDDEN = "hidden"


class OpenItem(Protocol):
    """An item to which text is still added."""

    item: JsonObject

    def begin(self) -> Iterator[Event]: ...

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]: ...

    def end(self, status: str) -> Iterator[Event]: ...


class OpenMessage:
    """A message of the assistant, of one text."""

    def __init__(self, index: int) -> None:
        self.item: JsonObject = {
            "id": new_id("msg"),
            "type": "message",
            "status": IN_PROGRESS,
            "role": "assistant",
            "content": [],
        }
        self._place = {"item_id": self.item["id"], "output_index": index, "content_index": 0}
        self._text: list[str] = []
        self._logprobs: list[JsonObject] = []

    def begin(self) -> Iterator[Event]:
        yield "response.content_part.added", {**self._place, "part": self._part()}

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]:
        tokens = token_logprobs(logprobs)
        self._text.append(text)
        self._logprobs += tokens
        yield "response.output_text.delta", {**self._place, "delta": text, "logprobs": tokens}

    def end(self, status: str) -> Iterator[Event]:
        part = self._part()
        self.item |= {"status": status, "content": [part]}
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", {**self._place, **done}
        yield "response.content_part.done", {**self._place, "part": part}

    def _part(self) -> JsonObject:
        text, logprobs = "".join(self._text), [*self._logprobs]
        return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}


class OpenReasoning:
    """Reasoning, in the form in which the client sees it; `seal` signs its text."""

    def __init__(self, index: int, view: ReasoningView, seal: Seal) -> None:
        self.item: JsonObject = {"id": new_id("rs"), "type": "reasoning", "summary": []}
        part = "summary_index" if view is ReasoningView.SUMMARY else "content_index"
        self._place = {"item_id": self.item["id"], "output_index": index, part: 0}
        self._view = view
        self._seal = seal
        self._text: list[str] = []

    def begin(self) -> Iterator[Event]:
        yield from self._part_event("added")

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]:
        self._text.append(text)
        yield from self._text_event("delta", {"delta": text})

    def end(self, status: str) -> Iterator[Event]:
        text = "".join(self._text)
        yield from self._text_event("done", {"text": text})
        yield from self._part_event("done")
        if self._view is ReasoningView.SUMMARY:
            self.item["summary"] = [self._part()]
        elif self._view is ReasoningView.TEXT:
            self.item["content"] = [self._part()]
        self.item["encrypted_content"] = self._seal({"text": text})

    def _part(self) -> JsonObject:
        kind = "summary_text" if self._view is ReasoningView.SUMMARY else "reasoning_text"
        return {"type": kind, "text": "".join(self._text)}

    def _part_event(self, step: str) -> Iterator[Event]:
        fields = {**self._place, "part": self._part()}
        if self._view is ReasoningView.SUMMARY:
            yield f"response.reasoning_summary_part.{step}", fields
        elif self._view is ReasoningView.TEXT:
            yield f"response.content_part.{step}", fields

    def _text_event(self, step: str, fields: JsonObject) -> Iterator[Event]:
        if self._view is ReasoningView.SUMMARY:
            yield f"response.reasoning_summary_text.{step}", {**self._place, **fields}
        elif self._view is ReasoningView.TEXT:
            yield f"response.reasoning_text.{step}", {**self._place, **fields}


@dataclass(slots=True)
class OutputWriter:
    """The items of one answer; each method yields the events of what it adds."""

    tools: Toolset
    view: ReasoningView
    seal: Seal
    one_call: bool = False
    items: list[JsonObject] = field(default_factory=list[JsonObject])
    _open: OpenItem | None = None

    def text(
        self, event: CallbackEvent, text: str, logprobs: Sequence[TokenLogprob] = ()
    ) -> Iterator[Event]:
        """Add text of the reasoning or of the answer."""
        kind = OpenReasoning if event is CallbackEvent.THINKING else OpenMessage
        if self._open is None or not isinstance(self._open, kind):
            yield from self.close(COMPLETED)
            yield from self._begin(event)
        if self._open is not None:
            yield from self._open.add(text, logprobs)

    def finish(self, generation: Generation, status: str) -> Iterator[Event]:
        """Add the calls, or an empty message if there is nothing else."""
        calls = generation.message.tool_calls
        said = any(item["type"] == "message" for item in self.items)
        if not calls and not said and not isinstance(self._open, OpenMessage):
            yield from self.close(COMPLETED)
            yield from self._begin(CallbackEvent.CONTENT)
        yield from self.close(COMPLETED if calls else status)
        yield from self._signatures(generation)
        for call in calls[:1] if self.one_call else calls:
            yield from self._call(call)

    def _signatures(self, generation: Generation) -> Iterator[Event]:
        """An item with what the provider behind the server needs again, if there is anything."""
        message = generation.message
        calls = {call.id: dict(call.extra) for call in message.tool_calls if call.extra}
        if message.extra or calls:
            content = self.seal({"extra": dict(message.extra), "calls": calls})
            item: JsonObject = {"id": new_id("rs"), "type": "reasoning", "summary": []}
            yield self._added(item)
            yield from self._done({**item, "encrypted_content": content})

    def close(self, status: str) -> Iterator[Event]:
        """End the item to which text is added."""
        item, self._open = self._open, None
        if item is not None:
            yield from item.end(status)
            yield from self._done(item.item)

    def _begin(self, event: CallbackEvent) -> Iterator[Event]:
        index = len(self.items)
        self._open = (
            OpenReasoning(index, self.view, self.seal)
            if event is CallbackEvent.THINKING
            else OpenMessage(index)
        )
        yield self._added(self._open.item)
        yield from self._open.begin()

    def _call(self, call: ToolCall) -> Iterator[Event]:
        offered = self.tools.of_call(call)
        names = {"call_id": call.id, "name": offered.name}
        done: JsonObject = {}
        if offered.namespace:
            names["namespace"] = offered.namespace
        if offered.custom:
            key, kind, text = "input", "custom_tool_call", custom_input(call)
            item: JsonObject = {"id": new_id("ctc"), "type": kind, "status": COMPLETED, **names}
            event = "response.custom_tool_call_input"
        else:
            key, kind, text = "arguments", "function_call", call.arguments_json
            item = {"id": new_id("fc"), "type": kind, "status": COMPLETED, **names}
            event = "response.function_call_arguments"
            done = {"name": offered.name}
        place = {"item_id": item["id"], "output_index": len(self.items)}
        yield self._added({**item, "status": IN_PROGRESS, key: ""})
        if text:
            yield f"{event}.delta", {**place, "delta": text}
        yield f"{event}.done", {**place, **done, key: text}
        yield from self._done({**item, key: text})

    def _added(self, item: JsonObject) -> Event:
        return "response.output_item.added", {"output_index": len(self.items), "item": {**item}}

    def _done(self, item: JsonObject) -> Iterator[Event]:
        index = len(self.items)
        self.items.append(item)
        yield "response.output_item.done", {"output_index": index, "item": {**item}}
