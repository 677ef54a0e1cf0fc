"""A generation in the shapes of the Responses API."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from shepherd import errors, messages, sampling
from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.json_text import frame
from shepherd.server import responses, serving
from shepherd.server.errors import ApiError
from shepherd.server.generation import ChoicePiece, Choices, PromptProgress
from shepherd.server.openai_responses.defined import DEFINED
from shepherd.server.openai_responses.requests import ResponseRecord, Status, usage_of
from shepherd.server.openai_responses.tools import Toolset
from shepherd.server.wire import answers
from shepherd.server.wire.tools import custom_input

Event: TypeAlias = tuple[str, messages.JsonObject]
"""The type of an event, and its fields without the sequence number."""

Seal: TypeAlias = Callable[[messages.JsonObject], str]
"""Signs the content of a reasoning item, for the client to send back."""


class ReasoningView(NamedTuple):
    """How reasoning is named where the client sees it: in its item, in events, and in parts."""

    field: str
    part_event: str
    text_event: str
    part_type: str


REASONING_SUMMARY = ReasoningView(
    "summary", "reasoning_summary_part", "reasoning_summary_text", "summary_text"
)
PLAIN_REASONING = ReasoningView("content", "content_part", "reasoning_text", "reasoning_text")


class OpenMessage:
    """A message of the assistant, of one text; each method yields the events of what it does."""

    def __init__(self, index: int) -> None:
        self.item: messages.JsonObject = {
            "id": answers.new_id("msg_", 32),
            "type": "message",
            "status": Status.IN_PROGRESS,
            "role": "assistant",
            "content": [],
        }
        # by which events name the part; its text in pieces, and the tokens of all of them
        self._place = {"item_id": self.item["id"], "output_index": index, "content_index": 0}
        self._text: list[str] = []
        self._logprobs: list[messages.JsonObject] = []

    def begin(self) -> Iterator[Event]:
        """The one part of the message is there, and empty."""
        yield "response.content_part.added", {**self._place, "part": self._part()}

    def add(self, text: str, logprobs: Sequence[sampling.TokenLogprob]) -> Iterator[Event]:
        """Add text, with the tokens that it consists of if they were requested."""
        tokens = answers.token_logprobs(logprobs)
        self._text.append(text)
        self._logprobs += tokens
        yield "response.output_text.delta", {**self._place, "delta": text, "logprobs": tokens}

    def end(self, status: Status) -> Iterator[Event]:
        """Complete the item: `status` says whether the answer was cut in it."""
        part = self._part()
        self.item |= {"status": status, "content": [part]}
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", {**self._place, **done}
        yield "response.content_part.done", {**self._place, "part": part}

    def _part(self) -> messages.JsonObject:
        """The part of the message with its text so far."""
        text, logprobs = "".join(self._text), [*self._logprobs]
        return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}


class OpenReasoning:
    """Reasoning, in the form in which the client sees it; `seal` signs its text.

    Without a view, the client does not see it: no events tell of its text.
    """

    def __init__(self, index: int, view: ReasoningView | None, seal: Seal) -> None:
        self.item = _empty_reasoning()
        self._names, self._seal = view, seal
        field = view.field if view else ""  # without a view, no event names a place
        self._place = {"item_id": self.item["id"], "output_index": index, f"{field}_index": 0}
        self._text: list[str] = []

    def begin(self) -> Iterator[Event]:
        """The one part that the client sees is there, and empty."""
        if self._names:
            part = {"type": self._names.part_type, "text": ""}
            yield f"response.{self._names.part_event}.added", {**self._place, "part": part}

    def add(self, text: str, _logprobs: Sequence[sampling.TokenLogprob]) -> Iterator[Event]:
        """Add text; this API reports no log probabilities of reasoning."""
        self._text.append(text)
        if self._names:
            yield f"response.{self._names.text_event}.delta", {**self._place, "delta": text}

    def end(self, _status: Status) -> Iterator[Event]:
        """Complete the item, which gets its signature; an item of reasoning has no status."""
        text = "".join(self._text)
        if self._names:
            part = {"type": self._names.part_type, "text": text}
            yield f"response.{self._names.text_event}.done", {**self._place, "text": text}
            yield f"response.{self._names.part_event}.done", {**self._place, "part": part}
            self.item[self._names.field] = [part]
        self.item["encrypted_content"] = self._seal({"text": text})


def _empty_reasoning() -> messages.JsonObject:
    """A new item of reasoning, to which text or a signature is added."""
    return {"id": answers.new_id("rs_", 32), "type": "reasoning", "summary": []}


OpenItem: TypeAlias = OpenMessage | OpenReasoning
"""An item to which text is still added."""


class OutputWriter(Struct):
    """The items of one answer; each method yields the events of what it adds."""

    tools: Toolset
    view: ReasoningView | None
    seal: Seal
    one_call: bool = False
    items: list[messages.JsonObject] = field(default_factory=list[messages.JsonObject])
    _open_item: OpenItem | None = None

    def add(self, piece: ChoicePiece) -> Iterator[Event]:
        """Add text of the reasoning or of the answer, which begins an item if the kind changes."""
        item = self._open_item
        is_reasoning = isinstance(item, OpenReasoning)
        if item is None or is_reasoning is not piece.is_reasoning:
            yield from self.close(Status.COMPLETED)
            index = len(self.items)
            if piece.is_reasoning:
                item = OpenReasoning(index, self.view, self.seal)
            else:
                item = OpenMessage(index)
            yield from self._begin(item)
        yield from item.add(piece.text, piece.logprobs)

    def finish(self, generation: Generation, status: Status) -> Iterator[Event]:
        """Add the calls, or an empty message if there is nothing else.

        `status` is that of a last message; in front of calls a message is complete.
        """
        calls = generation.message.tool_calls
        has_message = isinstance(self._open_item, OpenMessage) or any(
            item["type"] == "message" for item in self.items
        )
        if not calls and not has_message:
            yield from self.close(Status.COMPLETED)
            yield from self._begin(OpenMessage(len(self.items)))
        yield from self.close(Status.COMPLETED if calls else status)
        yield from self._signatures(generation)
        for call in answers.calls_of(generation, one_call=self.one_call):
            yield from self._call(call)

    def _signatures(self, generation: Generation) -> Iterator[Event]:
        """An item with what the provider behind the server needs again, if there is anything."""
        message = generation.message
        calls = {call.id: dict(call.extra) for call in message.tool_calls if call.extra}
        if message.extra or calls:
            content = self.seal({"extra": dict(message.extra), "calls": calls})
            item = _empty_reasoning()
            yield self._added(item)
            yield from self._done({**item, "encrypted_content": content})

    def close(self, status: Status) -> Iterator[Event]:
        """End the item to which text is added, if there is one."""
        item, self._open_item = self._open_item, None
        if item is not None:
            yield from item.end(status)
            yield from self._done(item.item)

    def _begin(self, item: OpenItem) -> Iterator[Event]:
        """Begin an item, to which text is added from now on."""
        self._open_item = item
        yield self._added(item.item)
        yield from item.begin()

    def _call(self, call: messages.ToolCall) -> Iterator[Event]:
        """Add a call, which is known as a whole; the events are those of a call that grows."""
        offered = self.tools.of_call(call)
        defined = DEFINED.get(offered.kind)
        if defined is not None:
            kind = offered.kind
            item: messages.JsonObject = {
                "id": answers.new_id(f"{kind}_", 32),
                "type": f"{kind}_call",
                "call_id": call.id,
            }
            item |= defined.item(call)
            yield self._added(item | {"status": Status.IN_PROGRESS})
            yield from self._done(item | {"status": Status.COMPLETED})
            return
        if offered.kind == "custom":
            prefix, kind, key, text = "ctc_", "custom_tool_call", "input", custom_input(call)
        else:
            prefix, kind, key, text = "fc_", "function_call", "arguments", call.arguments_json
        item = {
            "id": answers.new_id(prefix, 32),
            "type": kind,
            "status": Status.COMPLETED,
            "call_id": call.id,
            "name": offered.name,
        }
        if offered.namespace:
            item["namespace"] = offered.namespace
        event = f"response.{kind}_{key}"
        place = {"item_id": item["id"], "output_index": len(self.items)}
        yield self._added({**item, "status": Status.IN_PROGRESS, key: ""})
        if text:
            yield f"{event}.delta", {**place, "delta": text}
        name = {} if offered.kind == "custom" else {"name": offered.name}  # as in OpenAI's events
        yield f"{event}.done", {**place, **name, key: text}
        yield from self._done({**item, key: text})

    def _added(self, item: messages.JsonObject) -> Event:
        """The event of an item that begins, as it is now: later changes do not belong into it."""
        return "response.output_item.added", {"output_index": len(self.items), "item": {**item}}

    def _done(self, item: messages.JsonObject) -> Iterator[Event]:
        """Keep an item that is complete."""
        index = len(self.items)
        self.items.append(item)
        yield "response.output_item.done", {"output_index": index, "item": {**item}}


OPENING = ("response.created", "response.in_progress")


class EventWriter(Struct):
    """Writes the events of a response, with increasing numbers."""

    record: ResponseRecord
    _next_number: int = 0

    def frame(self, event: Event) -> str:
        """The server-sent event."""
        kind, fields = event
        data = {"type": kind, "sequence_number": self._next_number, **fields}
        self._next_number += 1
        return frame(data, kind)

    def state(self, kind: str, **more: messages.JsonObject) -> str:
        """An event that has the response as it is now."""
        return self.frame((kind, {"response": self.record.body(), **more}))


@dataclasses.dataclass
class ResponseAnswer(serving.Answer):
    """One answer, as an object or as events; `keep` is awaited before the last event is sent.

    `opening` are the events before the text that were not sent yet. `all_timings`: whether the
    events of text have them, and the last one.
    """

    record: ResponseRecord
    output: OutputWriter
    keep: Callable[[], Awaitable[None]]
    events: EventWriter
    opening: Sequence[str] = OPENING
    all_timings: bool = False

    def attach(self, choices: Choices) -> None:
        super().attach(choices)
        self.record.in_force = choices.handle(0).sampling

    def whole(self, generations: Sequence[Generation]) -> messages.JsonObject:
        """The response object, made of the items of its stream; `keep` is left to the caller."""
        (generation,) = generations
        for piece in answers.texts_of(generation):
            list(self.output.add(piece))  # makes the items; nobody reads the events
        self._finish(generation)
        return self.record.body()

    async def frames(self, choices: Choices) -> responses.Frames:
        """The events; an answer that breaks off after the first one ends as `response.failed`."""
        is_begun = False
        try:
            async for text in super().frames(choices):
                is_begun = True
                yield text
        except (ApiError, errors.ShepherdError) as error:
            if not is_begun:  # the client gets an ordinary error response
                raise
            events = [*self.output.close(Status.INCOMPLETE)]  # adds the open item to the others
            self.record.fail(error, self.output.items)
            for event in events:
                yield self.events.frame(event)
        await self.keep()
        yield self.events.state(f"response.{self.record.status.value}", **self._timings())

    def progress(self, progress: PromptProgress) -> str:
        """The event that tells how far the prompt is read, behind those of the beginning."""
        opening = "".join(self.begin(0))
        return opening + self.events.state(
            OPENING[-1], prompt_progress=answers.progress_fields(progress)
        )

    def begin(self, choice: int) -> Iterator[str]:
        """The events that say that the response is being made."""
        self.record.status = Status.IN_PROGRESS
        opening, self.opening = self.opening, ()
        yield from map(self.events.state, opening)

    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """The events of more text."""
        for kind, fields in self.output.add(piece):
            yield self.events.frame((kind, fields | self._timings()))

    def _timings(self) -> messages.JsonObject:
        """The measures so far, if the request wants them."""
        return (
            {"timings": answers.timings(self.choices.handle(0).stats())} if self.all_timings else {}
        )

    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """The events of the calls, and of the last item's end."""
        yield from map(self.events.frame, self._finish(generation))

    def _finish(self, generation: Generation) -> list[Event]:
        """Complete the response; the events of what follows the text."""
        is_cut = generation.finish_reason is FinishReason.LENGTH
        status = Status.INCOMPLETE if is_cut else Status.COMPLETED
        events = [*self.output.finish(generation, status)]
        self.record.usage = usage_of(generation)
        self.record.end(status, self.output.items)
        return events
