"""The answer of the responses API, streamed or whole."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shepherd.backends.api.adapter import (
    AnswerDecoder,
    CallDelta,
    Delta,
    ExtraDelta,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from shepherd.backends.api.coerce import as_count, as_object, as_objects, as_text
from shepherd.backends.api.openai.chat_decoder import FILTERED, REFUSED
from shepherd.backends.api.openai.common import error_delta, token_logprob
from shepherd.backends.api.openai.responses_request import kept_item
from shepherd.events import FinishReason
from shepherd.messages import JsonObject


@dataclass(slots=True)
class _Item:
    """The streamed characters of one item; `part` is the last part of its summary."""

    key: int | str
    characters: int = 0
    thought: int = 0
    argued: int = 0
    named: bool = False
    part: int = 0


class ResponsesDecoder(AnswerDecoder):
    """Reads events; parts of an item that were not streamed are sent when it is complete."""

    def __init__(self) -> None:
        self._items: dict[int | str, _Item] = {}
        self._done: set[int | str] = set()
        self._kept: dict[int | str, JsonObject] = {}
        self._called = False
        self._refused = False
        self._stopped = False
        self._handlers: dict[str, Callable[[JsonObject], Iterator[Delta]]] = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._refusal,
            "response.reasoning_summary_text.delta": self._thought,
            "response.reasoning_text.delta": self._thought,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._all_arguments,
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.completed": self._ended,
            "response.incomplete": self._ended,
            "response.failed": self._ended,
            "error": self._error,
        }

    @property
    def complete(self) -> bool:
        return self._stopped

    def feed(self, name: str, data: JsonObject) -> Iterable[Delta]:
        kind = as_text(data.get("type")) or name
        handler = self._handlers.get(kind)
        if handler is not None:
            yield from handler(data)
        elif data.get("object") == "response":
            yield from self._ended({"response": data})
        elif data.get("error"):
            yield error_delta(data)

    def _text(self, event: JsonObject) -> Iterator[Delta]:
        piece = as_text(event.get("delta"))
        self._item(event).characters += len(piece)
        logprobs = tuple(token_logprob(item) for item in as_objects(event.get("logprobs")))
        if piece or logprobs:
            yield TextDelta(piece, logprobs)

    def _refusal(self, event: JsonObject) -> Iterator[Delta]:
        self._refused = True
        yield from self._text(event)

    def _thought(self, event: JsonObject) -> Iterator[Delta]:
        """A piece of the reasoning; parts of a summary are separated."""
        item, piece = self._item(event), as_text(event.get("delta"))
        part = as_count(event.get("summary_index")) or 0
        if part != item.part and item.thought:
            piece = f"\n\n{piece}"
        item.part = part
        item.thought += len(piece)
        if piece:
            yield ThinkingDelta(piece)

    def _arguments(self, event: JsonObject) -> Iterator[Delta]:
        item, piece = self._item(event), as_text(event.get("delta"))
        item.argued += len(piece)
        if piece:
            yield CallDelta(item.key, arguments=piece)

    def _all_arguments(self, event: JsonObject) -> Iterator[Delta]:
        item, whole = self._item(event), as_text(event.get("arguments"))
        rest = whole[item.argued :]
        item.argued += len(rest)
        if rest:
            yield CallDelta(item.key, arguments=rest)

    def _added(self, event: JsonObject) -> Iterator[Delta]:
        content = as_object(event.get("item"))
        if content.get("type") == "function_call":
            yield from self._call(self._item(event), content)

    def _item_done(self, event: JsonObject) -> Iterator[Delta]:
        yield from self._whole(self._item(event), as_object(event.get("item")))

    def _whole(self, item: _Item, content: JsonObject) -> Iterator[Delta]:
        """The part of a complete item that was not streamed; the item is then kept."""
        if item.key in self._done:
            return
        self._done.add(item.key)
        match content.get("type"):
            case "message":
                yield from self._message(item, content)
            case "function_call":
                yield from self._call(item, content)
            case "reasoning":
                if not item.thought and (thought := _reasoning(content)):
                    yield ThinkingDelta(thought)
            case _:
                pass
        kept = kept_item(content, item.characters)
        if kept is not None:
            self._kept[item.key] = kept

    def _message(self, item: _Item, content: JsonObject) -> Iterator[Delta]:
        parts = as_objects(content.get("content"))
        self._refused = self._refused or any("refusal" in part for part in parts)
        whole = "".join(as_text(p.get("text")) or as_text(p.get("refusal")) for p in parts)
        rest = whole[item.characters :]
        item.characters += len(rest)
        if rest:
            yield TextDelta(rest)

    def _call(self, item: _Item, content: JsonObject) -> Iterator[Delta]:
        self._called = True
        rest = as_text(content.get("arguments"))[item.argued :]
        item.argued += len(rest)
        call_id, name = as_text(content.get("call_id")), as_text(content.get("name"))
        if item.named:
            call_id = name = ""
        item.named = item.named or bool(call_id)
        if call_id or name or rest:
            yield CallDelta(item.key, call_id, name, rest)

    def _ended(self, event: JsonObject) -> Iterator[Delta]:
        response = as_object(event.get("response"))
        for index, content in enumerate(as_objects(response.get("output"))):
            yield from self._whole(self._listed(index, content), content)
        yield from _usage(as_object(response.get("usage")))
        error = as_object(response.get("error"))
        if error or response.get("status") == "failed":
            yield error_delta({"error": error or {"message": "the response failed"}})
            return
        if self._kept:
            yield ExtraDelta({"items": [self._kept[key] for key in sorted(self._kept, key=_place)]})
        self._stopped = True
        why = as_text(as_object(response.get("incomplete_details")).get("reason"))
        yield self._stop(why)

    def _stop(self, why: str) -> StopDelta:
        if why in ("max_output_tokens", "max_tokens"):
            return StopDelta(FinishReason.LENGTH)
        note = FILTERED if why == "content_filter" else REFUSED if self._refused else ""
        return StopDelta(FinishReason.TOOL_CALLS if self._called else FinishReason.STOP, note)

    def _listed(self, index: int, content: JsonObject) -> _Item:
        """An item of the whole answer; llama.cpp's events have its id, but not its place."""
        known = self._items.get(as_text(content.get("id")))
        return known or self._item({"output_index": index})

    def _error(self, event: JsonObject) -> Iterator[Delta]:
        yield error_delta(event)

    def _item(self, event: JsonObject) -> _Item:
        """The item of an event: by its place, else by its id."""
        index = as_count(event.get("output_index"))
        named = as_text(event.get("item_id")) or as_text(as_object(event.get("item")).get("id"))
        key = named if index is None else index
        return self._items.setdefault(key, _Item(key))


def _place(key: int | str) -> int:
    """The place of an item; items known only by id come last."""
    return key if isinstance(key, int) else sys.maxsize


def _reasoning(content: JsonObject) -> str:
    """The text of a reasoning item: its summary, or the full text of open models."""
    parts = as_objects(content.get("summary")) or as_objects(content.get("content"))
    return "\n\n".join(as_text(part.get("text")) for part in parts)


def _usage(usage: JsonObject) -> Iterator[Delta]:
    if usage:
        details = as_object(usage.get("input_tokens_details"))
        yield UsageDelta(
            as_count(usage.get("input_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(usage.get("output_tokens")),
        )
