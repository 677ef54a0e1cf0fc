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


class _PartialCall(Struct):
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
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}

    def __bool__(self) -> bool:
        """Whether there is any call."""
        return bool(self._calls)

    def take(self, fragment: JsonObject) -> Iterator[stream.Call]:
        """The delta of one fragment; id and name are sent once."""
        function = as_object(fragment.get("function"))
        call_id, name = as_text(fragment.get("id")), as_text(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            arguments = json.dumps(cast(JsonObject, arguments), ensure_ascii=False)
        arguments_piece = as_text(arguments)
        index = as_count(fragment.get("index"))
        call = self._continued_call(index, call_id, name)
        if call is None:
            call = _PartialCall(len(self._calls))
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        new_id, new_name = "" if call.id else call_id, "" if call.name else name
        call.id, call.name = call.id or call_id, call.name or name
        if new_id or new_name or arguments_piece:
            yield stream.Call(call.key, new_id, new_name, arguments_piece)

    def _continued_call(self, index: int | None, call_id: str, name: str) -> _PartialCall | None:
        """The call that a fragment continues; None if it begins another one."""
        if index is not None:
            call = self._by_index.get(index)
            # several servers give every call the index 0: another id and name begin another one
            if call is None or (call_id and name and call.id and call.id != call_id):
                return None
            return call
        if call_id:  # a server without indexes
            call = next((call for call in self._calls if call.id == call_id), None)
            if call is not None or name:
                return call
        last = self._calls[-1] if self._calls else None
        return None if last is None or (name and last.name) else last


_TEXTS = ("text", "summary", "data")
"""The fields of a detail whose pieces are joined."""


def _add_to_details(details: list[JsonObject], fragment: JsonObject) -> None:
    """Join a fragment to the last detail if it has the same index and type, else append it."""
    last = details[-1] if details else {}
    is_continued = all(last.get(name) == fragment.get(name) for name in ("type", "index"))
    if not ("index" in last and is_continued):
        details.append(fragment)
        return
    joined = {
        name: as_text(last.get(name)) + as_text(fragment.get(name))
        for name in _TEXTS
        if name in last or name in fragment
    }
    # a later fragment may bring the signature; its null must not remove an earlier one
    values = {name: value for name, value in fragment.items() if value is not None}
    details[-1] = last | values | joined


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
        self._reasoning_details: list[JsonObject] = []
        """OpenRouter's, which must go back with the message."""
        self._has_output = False
        self._has_refusal = False

    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        error = data.get("error")
        if error or data.get("object") == "error":
            # the error is an object, a text, or the event itself
            is_text = bool(error) and not isinstance(error, dict)
            yield error_delta({"error": error} if is_text else data)
            return
        if usage := _usage(data):
            yield usage
        for choice in as_objects(data.get("choices")):
            if not as_count(choice.get("index")):  # 0, or none
                yield from self._choice(choice)

    def _choice(self, choice: JsonObject) -> Iterator[stream.Delta]:
        """What a chunk adds to the answer, or the whole answer."""
        message = as_object(choice.get("delta"))
        # a server may repeat the whole message after its pieces
        if not (isinstance(choice.get("delta"), dict) or self._has_output):
            message = as_object(choice.get("message"))
        yield from self._thoughts(message)
        yield from self._text(message, choice)
        yield from self._tool_calls(message)
        if usage := _usage(choice):
            yield usage
        reason = as_text(choice.get("finish_reason"))
        if reason and not self.complete:
            self.complete = True
            # vLLM and SGLang name the stop string, each in a field of its own.
            stop_string = as_text(choice.get("stop_reason")) or as_text(choice.get("matched_stop"))
            yield from self._stop(reason, stop_string)

    def _thoughts(self, message: JsonObject) -> Iterator[stream.Delta]:
        """The reasoning, which is in one of several fields, or in two at once."""
        details = as_objects(message.get("reasoning_details"))
        for detail in details:
            _add_to_details(self._reasoning_details, detail)
        plain = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
        # encrypted ones have no text
        texts = (as_text(d.get("text")) or as_text(d.get("summary")) for d in details)
        thought = plain or "".join(texts)
        if thought:
            self._has_output = True
            yield stream.Thinking(thought)

    def _text(self, message: JsonObject, choice: JsonObject) -> Iterator[stream.Delta]:
        """The text, with the log probabilities beside it, and a refusal, which is shown as text."""
        deltas = _content(message.get("content"))
        logprobs = as_object(choice.get("logprobs"))
        if logprobs and deltas and isinstance(deltas[-1], stream.Text):
            deltas[-1] = deltas[-1]._replace(logprobs=token_logprobs(logprobs))
        if deltas:
            self._has_output = True
            yield from deltas
        if refusal := as_text(message.get("refusal")):
            self._has_output = self._has_refusal = True
            yield stream.Text(refusal)

    def _tool_calls(self, message: JsonObject) -> Iterator[stream.Delta]:
        """The pieces of calls; old servers have one call in `function_call`."""
        fragments = as_objects(message.get("tool_calls"))
        if old_style := as_object(message.get("function_call")):
            fragments.append({"index": 0, "function": old_style})
        for fragment in fragments:
            self._has_output = True
            yield from self._calls.take(fragment)

    def _stop(self, reason: str, stop_string: str) -> Iterator[stream.Delta]:
        """The end of the answer, and before it the reasoning to send back."""
        if self._reasoning_details:
            yield stream.Extra({"reasoning_details": [*self._reasoning_details]})
        finish_reason = _REASONS.get(reason, FinishReason.STOP)
        if finish_reason is FinishReason.STOP and self._calls:  # as several servers end them
            finish_reason = FinishReason.TOOL_CALLS
        note = note_of_end(is_filtered=reason == "content_filter", is_refused=self._has_refusal)
        yield stream.Stop(finish_reason, note, stop_string)


def note_of_end(*, is_filtered: bool, is_refused: bool) -> str:
    """What the user should know of the end; "" for an ordinary one."""
    if is_filtered:
        return FILTERED
    return REFUSED if is_refused else ""


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
