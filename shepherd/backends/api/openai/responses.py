"""OpenAI's responses API: requests and answers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec import Struct, structs

from shepherd.backends.api import adapter, history, parameters, stream
from shepherd.backends.api.openai import chat_decoder, common, dialects
from shepherd.events import FinishReason
from shepherd.json_text import as_count, as_object, as_objects, as_text
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session

API_NAME = "openai-responses"
"""The name under which `Message.extra` keeps the items of an answer."""

MIN_TOKENS = 16
"""The smallest limit that the API accepts."""

_RULES = history.Rules(call_id=r"[A-Za-z0-9_-]{1,64}")
_FIXED = ("temperature", "top_p")
_SAMPLING = parameters.named(*_FIXED)


def responses_body(session: Session, model: adapter.ModelTraits, max_tokens: int) -> JsonObject:
    """The body; nothing is stored there, so reasoning is sent encrypted in both directions.

    Raises InvalidRequestError for a parameter that the API lacks.
    """
    conversation = history.normalise(session.system_message, session.messages, _RULES)
    system = common.asking_for_json(conversation.system, session.output_format)
    items = [item for m in conversation.messages for item in _items(m)]
    body: JsonObject = {"model": model.id, "input": items, "stream": True, "store": False}
    if system:
        body["instructions"] = system
    if max_tokens > 0:
        body["max_output_tokens"] = max(max_tokens, MIN_TOKENS)
    if session.tools:
        body["tools"] = [_tool(spec) for spec in session.tools]
    named = {"type": "function", "name": session.tool_choice.name if session.tool_choice else ""}
    body |= common.tool_choice(session, named)
    body |= common.text_format(session.output_format)
    return body | _options(session, model)


def _options(session: Session, model: adapter.ModelTraits) -> JsonObject:
    """Reasoning, sampling, and the answer's fields beside its text."""
    sampling = session.sampling
    options: JsonObject = {}
    include: list[str] = []
    if dialects.reasons(model.id) or model.thinking:
        include.append("reasoning.encrypted_content")
        options["reasoning"] = _reasoning(session, model)
    if dialects.reasons(model.id):
        sampling = structs.replace(sampling, **dict.fromkeys(_FIXED))
    elif sampling.logprobs is not None:
        include.append("message.output_text.logprobs")
        options["top_logprobs"] = sampling.logprobs
        sampling = structs.replace(sampling, logprobs=None)  # the API has it under another name
    if include:
        options["include"] = include
    return options | parameters.sampling_parameters(sampling, _SAMPLING, API_NAME)


def _reasoning(session: Session, model: adapter.ModelTraits) -> JsonObject:
    """How much the model thinks, and that it shows a summary of it."""
    thinking = parameters.thinks(session, model)
    effort = model.effort or ("medium" if thinking else "")
    if dialects.reasons(model.id):
        effort = dialects.effort_of(model.id, effort)
    result: JsonObject = {"effort": effort or "none"}
    if thinking:
        result["summary"] = "auto"
    return result


def _tool(spec: ToolSpec) -> JsonObject:
    """A tool; strict schemas, the API's default, would allow no optional arguments."""
    tool: JsonObject = {"type": "function", "name": spec.name, "parameters": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    return tool | {"strict": False}


def _items(message: Message) -> Iterator[JsonObject]:
    """The items of a message; an answer of the API goes back as it was divided there."""
    if message.role is Role.TOOL:
        output = {"call_id": message.tool_call_id, "output": message.content}
        yield {"type": "function_call_output", **output}
    elif message.role is Role.ASSISTANT:
        kept = as_objects(message.extra.get(API_NAME, {}).get("items"))
        yield from _replayed(message, kept) if _fits(message, kept) else _made_anew(message, kept)
    else:
        yield {"type": "message", "role": "user", "content": _content(message)}


def _content(message: Message) -> str | list[JsonObject]:
    """What the user says: plain text, or images with a text."""
    if not message.images:
        return message.content
    parts: list[JsonObject] = [
        {"type": "input_image", "image_url": image.data_url, "detail": "auto"}
        for image in message.images
    ]
    if message.content:
        parts.append({"type": "input_text", "text": message.content})
    return parts


def _fits(message: Message, kept: Sequence[JsonObject]) -> bool:
    """Whether the kept items still match the message, which may have been changed since."""
    lengths = [as_count(item.get("length")) or 0 for item in kept if _is(item, "message")]
    calls = [item for item in kept if _is(item, "function_call")]
    return sum(lengths) == len(message.content) and len(calls) == len(message.tool_calls)


def _replayed(message: Message, kept: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The items in the order in which they arrived."""
    calls, start = iter(message.tool_calls), 0
    for item in kept:
        if _is(item, "message"):
            end = start + (as_count(item.get("length")) or 0)
            if end > start:
                yield _output_message(message.content[start:end], as_text(item.get("phase")))
            start = end
        elif _is(item, "function_call"):
            yield _call(next(calls))
        elif _is_reasoning(item):
            yield item


def _made_anew(message: Message, kept: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The items of an answer of another model, or of a changed one.

    Only its encrypted reasoning is kept as it was; the rest is made from the message.
    """
    yield from filter(_is_reasoning, kept)
    if message.content:
        yield _output_message(message.content, "")
    yield from map(_call, message.tool_calls)


def _is(item: JsonObject, kind: str) -> bool:
    return item.get("type") == kind


def _is_reasoning(item: JsonObject) -> bool:
    """Whether the API can read it: it keeps no copy of an item that is not encrypted."""
    return _is(item, "reasoning") and bool(as_text(item.get("encrypted_content")))


def _output_message(content: str, phase: str) -> JsonObject:
    """A text of the model; `phase` is the API's own word for its role, "" if it sent none."""
    item: JsonObject = {"type": "message", "role": "assistant", "content": content}
    if phase:
        item["phase"] = phase
    return item


def _call(call: ToolCall) -> JsonObject:
    fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments_json}
    return {"type": "function_call", **fields}


def kept_item(item: JsonObject, length: int) -> JsonObject | None:
    """The data to keep of an answer's item; `length` is that of its text.

    Reasoning is kept unchanged. Of other items, only data that the message itself lacks is kept.
    """
    kind = as_text(item.get("type"))
    if kind == "reasoning":
        texts = [as_text(part.get("text")) for part in as_objects(item.get("summary"))]
        kept: JsonObject = {
            "type": kind,
            "id": as_text(item.get("id")),
            "encrypted_content": as_text(item.get("encrypted_content")),
            "summary": [{"type": "summary_text", "text": text} for text in texts],
        }
        return kept if kept["id"] and _is_reasoning(kept) else None
    if kind == "message":
        place: JsonObject = {"type": kind, "length": length}
        if phase := as_text(item.get("phase")):
            place["phase"] = phase
        return place
    return {"type": kind} if kind == "function_call" else None


class _Item(Struct):
    """How many characters of one item were sent: of its text, its thought and its arguments.

    `has_sent_name`: id and name of the call were sent. `summary_part` is the last one that came.
    """

    key: int | str
    text_length: int = 0
    thought_length: int = 0
    arguments_length: int = 0
    has_sent_name: bool = False
    summary_part: int = 0


class ResponsesDecoder(stream.Decoder):
    """Reads events; parts of an item that were not streamed are sent when it is complete."""

    def __init__(self) -> None:
        self._items: dict[int | str, _Item] = {}
        self._complete_items: set[int | str] = set()
        self._kept: dict[int | str, JsonObject] = {}
        """The data of complete items that the API needs back."""
        self._has_calls = False
        self._has_refusal = False
        self._handlers: dict[str, Callable[[JsonObject], Iterator[stream.Delta]]] = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._refusal,
            "response.reasoning_summary_text.delta": self._thought,
            "response.reasoning_text.delta": self._thought,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._all_arguments,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._response_ended,
            "response.incomplete": self._response_ended,
            "response.failed": self._response_ended,
        }

    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        kind = as_text(data.get("type")) or name
        handler = self._handlers.get(kind)
        if handler is not None:
            yield from handler(data)
        elif data.get("object") == "response":  # the whole answer: it was not streamed
            yield from self._response_ended({"response": data})
        elif data.get("error") or kind == "error":
            yield common.error_delta(data)

    def _text(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A piece of the text, with the log probabilities of its tokens if they were requested."""
        piece = as_text(event.get("delta"))
        self._item(event).text_length += len(piece)
        logprobs = tuple(common.token_logprob(item) for item in as_objects(event.get("logprobs")))
        if piece or logprobs:
            yield stream.Text(piece, logprobs)

    def _refusal(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A piece of the reason why the model refuses, which is shown as text."""
        self._has_refusal = True
        yield from self._text(event)

    def _thought(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A piece of the reasoning; parts of a summary are separated."""
        item, piece = self._item(event), as_text(event.get("delta"))
        part = as_count(event.get("summary_index")) or 0
        if part != item.summary_part and item.thought_length:  # a blank line between two parts
            piece = f"\n\n{piece}"
        item.summary_part = part
        item.thought_length += len(piece)
        if piece:
            yield stream.Thinking(piece)

    def _arguments(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A piece of a call's arguments."""
        item, piece = self._item(event), as_text(event.get("delta"))
        item.arguments_length += len(piece)
        if piece:
            yield stream.Call(item.key, arguments=piece)

    def _all_arguments(self, event: JsonObject) -> Iterator[stream.Delta]:
        """The end of the arguments: the event has all of them, also those sent before."""
        item, arguments = self._item(event), as_text(event.get("arguments"))
        unsent = arguments[item.arguments_length :]
        item.arguments_length += len(unsent)
        if unsent:
            yield stream.Call(item.key, arguments=unsent)

    def _item_added(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A new item; only a call has something to show at its beginning, its name."""
        new_item = as_object(event.get("item"))
        if new_item.get("type") == "function_call":
            yield from self._call(self._item(event), new_item)

    def _item_done(self, event: JsonObject) -> Iterator[stream.Delta]:
        """The end of an item; the event has all of it."""
        yield from self._whole(self._item(event), as_object(event.get("item")))

    def _whole(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
        """The part of a complete item that was not streamed; the item is then kept."""
        if item.key in self._complete_items:
            return
        self._complete_items.add(item.key)
        match content.get("type"):
            case "message":
                yield from self._message(item, content)
            case "function_call":
                yield from self._call(item, content)
            case "reasoning":
                if not item.thought_length and (thought := _reasoning_text(content)):
                    yield stream.Thinking(thought)
            case _:
                pass
        kept = kept_item(content, item.text_length)
        if kept is not None:
            self._kept[item.key] = kept

    def _message(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
        """The end of a text that was not streamed; `content` has all of it."""
        parts = as_objects(content.get("content"))
        self._has_refusal = self._has_refusal or any("refusal" in part for part in parts)
        text = "".join(as_text(p.get("text")) or as_text(p.get("refusal")) for p in parts)
        unsent = text[item.text_length :]
        item.text_length += len(unsent)
        if unsent:
            yield stream.Text(unsent)

    def _call(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
        """What was not sent of a call: its name, or the end of its arguments."""
        self._has_calls = True
        unsent = as_text(content.get("arguments"))[item.arguments_length :]
        item.arguments_length += len(unsent)
        call_id, name = as_text(content.get("call_id")), as_text(content.get("name"))
        if item.has_sent_name:
            call_id = name = ""
        item.has_sent_name = item.has_sent_name or bool(call_id)
        if call_id or name or unsent:
            yield stream.Call(item.key, call_id, name, unsent)

    def _response_ended(self, event: JsonObject) -> Iterator[stream.Delta]:
        """The end of the answer; the event repeats all items, of which some were not streamed."""
        response = as_object(event.get("response"))
        for index, content in enumerate(as_objects(response.get("output"))):
            # llama.cpp's events have an item's id, but not its place
            by_id = self._items.get(as_text(content.get("id")))
            yield from self._whole(by_id or self._item({"output_index": index}), content)
        yield from _usage(as_object(response.get("usage")))
        error = as_object(response.get("error"))
        if error or response.get("status") == "failed":
            yield common.error_delta({"error": error or {"message": "the response failed"}})
            return
        if self._kept:
            items = [self._kept[key] for key in sorted(self._kept, key=_place)]
            yield stream.Extra({"items": items})
        self.complete = True
        yield self._stop(as_text(as_object(response.get("incomplete_details")).get("reason")))

    def _stop(self, incomplete_reason: str) -> stream.Stop:
        """The stop; a complete answer has no `incomplete_reason`."""
        if incomplete_reason in ("max_output_tokens", "max_tokens"):
            return stream.Stop(FinishReason.LENGTH)
        is_filtered = incomplete_reason == "content_filter"
        note = chat_decoder.note_of_end(is_filtered=is_filtered, is_refused=self._has_refusal)
        return stream.Stop(FinishReason.TOOL_CALLS if self._has_calls else FinishReason.STOP, note)

    def _item(self, event: JsonObject) -> _Item:
        """The item of an event: by its place, else by its id."""
        key: int | str | None = as_count(event.get("output_index"))
        if key is None:
            item = as_object(event.get("item"))
            key = as_text(event.get("item_id")) or as_text(item.get("id"))
        return self._items.setdefault(key, _Item(key))


def _place(key: int | str) -> int:
    """The place of an item; items known only by id come last."""
    return key if isinstance(key, int) else sys.maxsize


def _reasoning_text(content: JsonObject) -> str:
    """The text of a reasoning item: its summary, or the full text of open models."""
    parts = as_objects(content.get("summary")) or as_objects(content.get("content"))
    return "\n\n".join(as_text(part.get("text")) for part in parts)


def _usage(usage: JsonObject) -> Iterator[stream.Delta]:
    """The response's counts, if it has any."""
    if usage:
        details = as_object(usage.get("input_tokens_details"))
        yield stream.Usage(
            as_count(usage.get("input_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(usage.get("output_tokens")),
        )


class OpenAIResponsesAdapter(common.OpenAIAdapter):
    """The responses API, without anything stored there."""

    name: ClassVar[str] = API_NAME

    def chat(
        self, session: Session, model: adapter.ModelTraits, max_tokens: int
    ) -> adapter.ApiRequest:
        body = responses_body(session, model, max_tokens)
        return adapter.ApiRequest(f"responses{self.query}", body)

    def decoder(self) -> stream.Decoder:
        return ResponsesDecoder()
