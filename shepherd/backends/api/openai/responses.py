"""OpenAI's responses API: requests and answers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import ApiRequest, ModelTraits
from shepherd.backends.api.history import Rules, normalise
from shepherd.backends.api.openai import common
from shepherd.backends.api.openai.chat_decoder import FILTERED, REFUSED
from shepherd.backends.api.openai.dialects import effort_of, reasons
from shepherd.backends.api.parameters import sampling_parameters, thinks
from shepherd.events import FinishReason
from shepherd.json_text import as_count, as_object, as_objects, as_text
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.session import Session

API_NAME = "openai-responses"
"""The name under which `Message.extra` keeps the items of an answer."""

MIN_TOKENS = 16
"""The smallest limit that the API accepts."""

_RULES = Rules(call_id=r"[A-Za-z0-9_-]{1,64}")
_SAMPLING = {"temperature": "temperature", "top_p": "top_p"}
_FIXED = ("temperature", "top_p")


def responses_body(session: Session, model: ModelTraits, max_tokens: int) -> JsonObject:
    """The body; nothing is stored there, so reasoning is sent encrypted in both directions.

    Raises InvalidRequestError for a parameter that the API lacks.
    """
    conversation = normalise(session.system_message, session.messages, _RULES)
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


def _options(session: Session, model: ModelTraits) -> JsonObject:
    """Reasoning, sampling, and the answer's fields beside its text."""
    sampling, options, include = session.sampling, JsonObject(), list[str]()
    if reasons(model.id) or model.thinking:
        include.append("reasoning.encrypted_content")
        options["reasoning"] = _reasoning(session, model)
    if reasons(model.id):
        sampling = replace(sampling, **dict.fromkeys(_FIXED))
    elif sampling.logprobs is not None:
        include.append("message.output_text.logprobs")
        options["top_logprobs"] = sampling.logprobs
        sampling = replace(sampling, logprobs=None)
    options |= {"include": include} if include else {}
    return options | sampling_parameters(sampling, _SAMPLING, API_NAME)


def _reasoning(session: Session, model: ModelTraits) -> JsonObject:
    thinking = thinks(session, model)
    effort = model.effort or ("medium" if thinking else "")
    if reasons(model.id):
        effort = effort_of(model.id, effort)
    return {"effort": effort or "none"} | ({"summary": "auto"} if thinking else {})


def _tool(spec: ToolSpec) -> JsonObject:
    tool: JsonObject = {"type": "function", "name": spec.name, "parameters": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    return tool | {"strict": False}


def _items(message: Message) -> Iterator[JsonObject]:
    if message.role is Role.TOOL:
        output = {"call_id": message.tool_call_id, "output": message.content}
        yield {"type": "function_call_output", **output}
    elif message.role is Role.ASSISTANT:
        kept = as_objects(message.extra.get(API_NAME, {}).get("items"))
        yield from _replayed(message, kept) if _fits(message, kept) else _plain(message, kept)
    else:
        yield {"type": "message", "role": "user", "content": _content(message)}


def _content(message: Message) -> str | list[JsonObject]:
    if not message.images:
        return message.content
    parts: list[JsonObject] = [
        {"type": "input_image", "image_url": image.data_url, "detail": "auto"}
        for image in message.images
    ]
    return parts + ([{"type": "input_text", "text": message.content}] if message.content else [])


def _fits(message: Message, kept: Sequence[JsonObject]) -> bool:
    """Whether the kept items still match the message."""
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


def _plain(message: Message, kept: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The items of an answer of another model, or of a changed one."""
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
    item: JsonObject = {"type": "message", "role": "assistant", "content": content}
    return item | ({"phase": phase} if phase else {})


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
        names = ("type", "id", "encrypted_content")
        kept: JsonObject = {name: text for name in names if (text := as_text(item.get(name)))}
        kept["summary"] = [{"type": "summary_text", "text": text} for text in texts]
        return kept if "id" in kept and _is_reasoning(kept) else None
    if kind == "message":
        phase = as_text(as_object(item).get("phase"))
        return {"type": kind, "length": length} | ({"phase": phase} if phase else {})
    return {"type": kind} if kind == "function_call" else None


class _Item(Struct):
    """How many characters of one item were sent: of its text, its thought and its arguments.

    `named`: id and name of the call were sent. `part` is the last part of the summary.
    """

    key: int | str
    characters: int = 0
    thought: int = 0
    argued: int = 0
    named: bool = False
    part: int = 0


class ResponsesDecoder(stream.Decoder):
    """Reads events; parts of an item that were not streamed are sent when it is complete."""

    def __init__(self) -> None:
        self._items: dict[int | str, _Item] = {}
        self._done: set[int | str] = set()
        self._kept: dict[int | str, JsonObject] = {}
        self._called = False
        self._refused = False
        self._stopped = False
        self._handlers: dict[str, Callable[[JsonObject], Iterator[stream.Delta]]] = {
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
        }

    @property
    def complete(self) -> bool:
        return self._stopped

    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        kind = as_text(data.get("type")) or name
        handler = self._handlers.get(kind)
        if handler is not None:
            yield from handler(data)
        elif data.get("object") == "response":
            yield from self._ended({"response": data})
        elif data.get("error") or kind == "error":
            yield common.error_delta(data)

    def _text(self, event: JsonObject) -> Iterator[stream.Delta]:
        piece = as_text(event.get("delta"))
        self._item(event).characters += len(piece)
        logprobs = tuple(common.token_logprob(item) for item in as_objects(event.get("logprobs")))
        if piece or logprobs:
            yield stream.Text(piece, logprobs)

    def _refusal(self, event: JsonObject) -> Iterator[stream.Delta]:
        self._refused = True
        yield from self._text(event)

    def _thought(self, event: JsonObject) -> Iterator[stream.Delta]:
        """A piece of the reasoning; parts of a summary are separated."""
        item, piece = self._item(event), as_text(event.get("delta"))
        part = as_count(event.get("summary_index")) or 0
        if part != item.part and item.thought:  # a blank line between two parts
            piece = f"\n\n{piece}"
        item.part = part
        item.thought += len(piece)
        if piece:
            yield stream.Thinking(piece)

    def _arguments(self, event: JsonObject) -> Iterator[stream.Delta]:
        item, piece = self._item(event), as_text(event.get("delta"))
        item.argued += len(piece)
        if piece:
            yield stream.Call(item.key, arguments=piece)

    def _all_arguments(self, event: JsonObject) -> Iterator[stream.Delta]:
        item, whole = self._item(event), as_text(event.get("arguments"))
        rest = whole[item.argued :]
        item.argued += len(rest)
        if rest:
            yield stream.Call(item.key, arguments=rest)

    def _added(self, event: JsonObject) -> Iterator[stream.Delta]:
        content = as_object(event.get("item"))
        if content.get("type") == "function_call":
            yield from self._call(self._item(event), content)

    def _item_done(self, event: JsonObject) -> Iterator[stream.Delta]:
        yield from self._whole(self._item(event), as_object(event.get("item")))

    def _whole(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
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
                if not item.thought and (thought := _reasoning_text(content)):
                    yield stream.Thinking(thought)
            case _:
                pass
        kept = kept_item(content, item.characters)
        if kept is not None:
            self._kept[item.key] = kept

    def _message(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
        parts = as_objects(content.get("content"))
        self._refused = self._refused or any("refusal" in part for part in parts)
        whole = "".join(as_text(p.get("text")) or as_text(p.get("refusal")) for p in parts)
        rest = whole[item.characters :]
        item.characters += len(rest)
        if rest:
            yield stream.Text(rest)

    def _call(self, item: _Item, content: JsonObject) -> Iterator[stream.Delta]:
        self._called = True
        rest = as_text(content.get("arguments"))[item.argued :]
        item.argued += len(rest)
        call_id, name = as_text(content.get("call_id")), as_text(content.get("name"))
        if item.named:
            call_id = name = ""
        item.named = item.named or bool(call_id)
        if call_id or name or rest:
            yield stream.Call(item.key, call_id, name, rest)

    def _ended(self, event: JsonObject) -> Iterator[stream.Delta]:
        response = as_object(event.get("response"))
        for index, content in enumerate(as_objects(response.get("output"))):
            yield from self._whole(self._listed(index, content), content)
        yield from _usage(as_object(response.get("usage")))
        error = as_object(response.get("error"))
        if error or response.get("status") == "failed":
            yield common.error_delta({"error": error or {"message": "the response failed"}})
            return
        if self._kept:
            yield stream.Extra(
                {"items": [self._kept[key] for key in sorted(self._kept, key=_place)]}
            )
        self._stopped = True
        why = as_text(as_object(response.get("incomplete_details")).get("reason"))
        yield self._stop(why)

    def _stop(self, why: str) -> stream.Stop:
        if why in ("max_output_tokens", "max_tokens"):
            return stream.Stop(FinishReason.LENGTH)
        note = FILTERED if why == "content_filter" else REFUSED if self._refused else ""
        return stream.Stop(FinishReason.TOOL_CALLS if self._called else FinishReason.STOP, note)

    def _listed(self, index: int, content: JsonObject) -> _Item:
        """An item of the whole answer; llama.cpp's events have its id, but not its place."""
        known = self._items.get(as_text(content.get("id")))
        return known or self._item({"output_index": index})

    def _item(self, event: JsonObject) -> _Item:
        """The item of an event: by its place, else by its id."""
        index = as_count(event.get("output_index"))
        named = as_text(event.get("item_id")) or as_text(as_object(event.get("item")).get("id"))
        key = named if index is None else index
        return self._items.setdefault(key, _Item(key))


def _place(key: int | str) -> int:
    """The place of an item; items known only by id come last."""
    return key if isinstance(key, int) else sys.maxsize


def _reasoning_text(content: JsonObject) -> str:
    """The text of a reasoning item: its summary, or the full text of open models."""
    parts = as_objects(content.get("summary")) or as_objects(content.get("content"))
    return "\n\n".join(as_text(part.get("text")) for part in parts)


def _usage(usage: JsonObject) -> Iterator[stream.Delta]:
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

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = responses_body(session, model, max_tokens)
        return ApiRequest(f"responses{self.query}", body)

    def decoder(self) -> stream.Decoder:
        return ResponsesDecoder()
