"""The answer of chat completions, streamed or whole."""

import json
from collections.abc import Iterable, Iterator
from typing import cast

from msgspec import Struct

from shepherd.backends.api import stream
from shepherd.backends.api.openai.common import error_delta, token_logprobs
from shepherd.events import FinishReason
from shepherd.json_text import as_count, as_object, as_objects, as_text
from shepherd.messages import JsonObject


class _Slot(Struct):
    """A call with at least one fragment."""

    key: int
    id: str = ""
    name: str = ""


class CallSlots:
    """Sorts the fragments of one answer's calls.

    A fragment belongs to the call with its index or, without an index, with its id. A different
    name and id, or a name without index and id, begin another call: several servers give every call
    the index 0, or none. Other fragments continue the last call.
    """

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def __bool__(self) -> bool:
        """Whether there is any call."""
        return bool(self._slots)

    def take(self, fragment: JsonObject) -> Iterator[stream.Call]:
        """The delta of one fragment; id and name are sent once."""
        function = as_object(fragment.get("function"))
        own_id, name = as_text(fragment.get("id")), as_text(function.get("name"))
        arguments = _json_text(function.get("arguments"))
        slot = self._slot(as_count(fragment.get("index")), own_id, name)
        first_id, first_name = "" if slot.id else own_id, "" if slot.name else name
        slot.id, slot.name = slot.id or own_id, slot.name or name
        if first_id or first_name or arguments:
            yield stream.Call(slot.key, first_id, first_name, arguments)

    def _slot(self, index: int | None, id: str, name: str) -> _Slot:
        known = self._known(index, id, name)
        if known is None:
            known = _Slot(len(self._slots))
            self._slots.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _known(self, index: int | None, id: str, name: str) -> _Slot | None:
        if index is not None:
            slot = self._by_index.get(index)
            return None if slot is None or _is_other(slot, id, name) else slot
        if id:
            result = next((slot for slot in self._slots if slot.id == id), None)
            if result is not None or name:
                return result
        last = self._slots[-1] if self._slots else None
        return None if last is None or (name and last.name) else last


def _is_other(slot: _Slot, id: str, name: str) -> bool:
    return bool(id and name and slot.id and slot.id != id)


def _json_text(arguments: object) -> str:
    """The text to append; some servers send the object itself."""
    if isinstance(arguments, dict):
        return json.dumps(cast(JsonObject, arguments), ensure_ascii=False)
    return as_text(arguments)


_TEXTS = ("text", "summary", "data")


def detail_text(detail: JsonObject) -> str:
    """The readable text of a fragment; encrypted ones have none."""
    return as_text(detail.get("text")) or as_text(detail.get("summary"))


class ReasoningDetails:
    """Joins streamed fragments: neighbours of the same index and type form one detail."""

    def __init__(self) -> None:
        self._details: list[JsonObject] = []

    def __bool__(self) -> bool:
        return bool(self._details)

    def take(self, fragments: list[JsonObject]) -> None:
        for fragment in fragments:
            last = self._details[-1] if self._details else None
            if last is not None and _is_one(last, fragment):
                joined = {
                    name: as_text(last.get(name)) + as_text(fragment.get(name))
                    for name in _TEXTS
                    if name in last or name in fragment
                }
                values = {name: value for name, value in fragment.items() if value is not None}
                self._details[-1] = last | values | joined
            else:
                self._details.append(dict(fragment))

    def merged(self) -> list[JsonObject]:
        """The details to send back."""
        return list(self._details)


def _is_one(last: JsonObject, fragment: JsonObject) -> bool:
    same = all(last.get(name) == fragment.get(name) for name in ("type", "index"))
    return same and "index" in last


FILTERED = "The provider's content filter ended the answer."
REFUSED = "The model refused to answer."

_REASONS = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "error": FinishReason.ERROR,
}


class ChatDecoder(stream.Decoder):
    """Reads chunks, and whole answers of servers that do not stream; only the first choice."""

    def __init__(self) -> None:
        self._calls = CallSlots()
        self._details = ReasoningDetails()
        self._has_output = False
        self._refused = False
        self._stopped = False

    @property
    def complete(self) -> bool:
        return self._stopped

    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        error = data.get("error")
        if error or data.get("object") == "error":
            yield error_delta(data if isinstance(error, dict) or not error else {"error": error})
            return
        if usage := _usage(data):
            yield usage
        for choice in as_objects(data.get("choices")):
            if not as_count(choice.get("index")):
                yield from self._choice(choice)

    def _choice(self, choice: JsonObject) -> Iterator[stream.Delta]:
        delta = choice.get("delta")
        whole = as_object(choice.get("message"))
        message = as_object(delta) if isinstance(delta, dict) or self._has_output else whole
        yield from self._thoughts(message)
        yield from self._text(message, choice)
        yield from self._tool_calls(message)
        if usage := _usage(choice):
            yield usage
        reason = as_text(choice.get("finish_reason"))
        if reason and not self._stopped:
            self._stopped = True
            # vLLM and SGLang name the stop string, each in a field of its own.
            named = as_text(choice.get("stop_reason")) or as_text(choice.get("matched_stop"))
            yield from self._stop(reason, named)

    def _thoughts(self, message: JsonObject) -> Iterator[stream.Delta]:
        """The reasoning, which is in one of several fields, or in two at once."""
        details = as_objects(message.get("reasoning_details"))
        self._details.take(details)
        plain = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
        thought = plain or "".join(map(detail_text, details))
        if thought:
            self._has_output = True
            yield stream.Thinking(thought)

    def _text(self, message: JsonObject, choice: JsonObject) -> Iterator[stream.Delta]:
        deltas = _content(message.get("content"))
        logprobs = as_object(choice.get("logprobs"))
        if logprobs and deltas and isinstance(deltas[-1], stream.Text):
            deltas[-1] = deltas[-1]._replace(logprobs=token_logprobs(logprobs))
        if deltas:
            self._has_output = True
            yield from deltas
        if refusal := as_text(message.get("refusal")):
            self._has_output = self._refused = True
            yield stream.Text(refusal)

    def _tool_calls(self, message: JsonObject) -> Iterator[stream.Delta]:
        fragments = as_objects(message.get("tool_calls"))
        if old_style := as_object(message.get("function_call")):
            fragments.append({"index": 0, "function": old_style})
        for fragment in fragments:
            self._has_output = True
            yield from self._calls.take(fragment)

    def _stop(self, reason: str, stop_string: str) -> Iterator[stream.Delta]:
        if self._details:
            yield stream.Extra({"reasoning_details": self._details.merged()})
        note = FILTERED if reason == "content_filter" else REFUSED if self._refused else ""
        ended = _REASONS.get(reason, FinishReason.STOP)
        if ended is FinishReason.STOP and self._calls:
            ended = FinishReason.TOOL_CALLS
        yield stream.Stop(ended, note, stop_string)


def _content(content: object) -> list[stream.Delta]:
    """The text of a string or of parts; some of Mistral's parts are thoughts."""
    if isinstance(content, str):
        return [stream.Text(content)] if content else []
    deltas: list[stream.Delta] = []
    for part in as_objects(content):
        inner = part.get("thinking")
        thought = as_text(inner) or "".join(as_text(p.get("text")) for p in as_objects(inner))
        if thought:
            deltas.append(stream.Thinking(thought))
        elif text := as_text(part.get("text")) or as_text(part.get("refusal")):
            deltas.append(stream.Text(text))
    return deltas


def _usage(holder: JsonObject) -> stream.Usage | None:
    """The usage: in a chunk, in a choice (Moonshot) or beside it (Groq)."""
    usage = as_object(holder.get("usage"))
    if not usage and "x_groq" in holder:
        usage = as_object(as_object(holder.get("x_groq")).get("usage"))
    if not usage:
        return None
    details = as_object(usage.get("prompt_tokens_details"))
    cached = as_count(details.get("cached_tokens"))
    return stream.Usage(
        as_count(usage.get("prompt_tokens")),
        as_count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        as_count(usage.get("completion_tokens")),
    )
