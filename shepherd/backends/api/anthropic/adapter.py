"""The Messages API's adapter: for Anthropic, and for compatible servers (llama.cpp's)."""

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar
from urllib.parse import quote

from msgspec import Struct

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelEntry, ModelTraits
from shepherd.backends.api.anthropic import dialect
from shepherd.backends.api.anthropic.request import SAMPLING_PARAMETERS, chat_body, output_limit
from shepherd.backends.api.model_list import OUTPUT_FIELDS, listed_model, llama_cpp_model
from shepherd.events import FinishReason
from shepherd.json_text import as_count, as_error_status, as_flag, as_object, as_objects, as_text
from shepherd.messages import JsonObject
from shepherd.session import Session

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "gateway_timeout_error": 504,
    "overloaded_error": 529,
}

_REASONS = {
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
}
"""All others are ends of the model's own."""

_NOTES = {
    "model_context_window_exceeded": "The answer ends here because the context is full.",
    "pause_turn": "The provider paused the answer; say “continue” to go on.",
    "refusal": "The provider's safety filter ended the answer",
}

_COUNTS = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)


class _Block(Struct):
    """A content block as it grows; `number` is its place in the whole answer.

    `has_sent_arguments`: deltas with arguments of the call were made.
    """

    number: int
    data: JsonObject
    has_sent_arguments: bool = False

    @property
    def kind(self) -> str:
        return str(self.data.get("type"))


class AnthropicDecoder(stream.Decoder):
    """Deltas of the Messages API's events; servers may leave out parts of them."""

    def __init__(self) -> None:
        self._model = ""
        self._blocks: list[_Block] = []
        self._block_by_index_and_type: dict[tuple[int | None, str], _Block] = {}
        self._usage: dict[str, int] = {}
        self._has_finished_blocks = False

    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        return list(self._deltas(name or as_text(data.get("type")), data))

    def _deltas(self, kind: str, data: JsonObject) -> Iterable[stream.Delta]:
        """The deltas of an event; one of another kind, such as "ping", has none."""
        match kind:
            case "content_block_delta":
                yield from self._block_delta(data)
            case "content_block_start":
                yield from self._block_start(data)
            case "content_block_stop":
                yield from self._block_stop(data)
            case "message_start":
                yield from self._message_start(data)
            case "message_delta":
                yield from self._message_delta(data)
            case "message_stop":
                yield from self._message_stop()
            case "message":  # an answer that was not streamed
                yield from self._message_start({"message": data})
                for index, content in enumerate(as_objects(data.get("content"))):
                    yield from self._block_start({"index": index, "content_block": content})
                yield from self._message_delta({"delta": data})
                yield from self._message_stop()
            case "error":
                yield _error(data)
            case _:
                pass

    def _message_start(self, data: JsonObject) -> Iterable[stream.Delta]:
        """The model's exact name, under which its thoughts are kept, and the prompt's usage."""
        message = as_object(data.get("message"))
        self._model = as_text(message.get("model"))
        yield from self._add_usage(as_object(message.get("usage")))

    def _block_start(self, data: JsonObject) -> Iterable[stream.Delta]:
        """A new block; in an answer that is not streamed it has all of its content."""
        content = as_object(data.get("content_block"))
        block = self._new_block(as_count(data.get("index")), as_text(content.get("type")))
        match block.kind:
            case "text":
                yield from self._grow(block, "text", as_text(content.get("text")))
            case "thinking":
                block.data["signature"] = as_text(content.get("signature"))
                yield from self._grow(block, "thinking", as_text(content.get("thinking")))
            case "redacted_thinking":
                block.data["data"] = as_text(content.get("data"))
            case "tool_use":
                block.data |= {
                    "id": as_text(content.get("id")),
                    "input": as_object(content.get("input")),
                }
                yield stream.Call(block.number, block.data["id"], as_text(content.get("name")))
            case _:
                pass

    def _block_delta(self, data: JsonObject) -> Iterable[stream.Delta]:
        """A piece of a block; a piece of a call that never began is ignored, as it has no name."""
        delta = as_object(data.get("delta"))
        index = as_count(data.get("index"))
        match as_text(delta.get("type")):
            case "text_delta":
                block = self._block_at(index, dialect.TEXT)
                yield from self._grow(block, "text", as_text(delta.get("text")))
            case "thinking_delta":
                block = self._block_at(index, dialect.THINKING)
                yield from self._grow(block, "thinking", as_text(delta.get("thinking")))
            case "signature_delta":
                block = self._block_at(index, dialect.THINKING)
                block.data["signature"] = as_text(delta.get("signature"))
            case "input_json_delta":
                call = self._block_by_index_and_type.get((index, dialect.CALL))
                if call is not None:
                    piece = as_text(delta.get("partial_json"))
                    call.has_sent_arguments |= bool(piece)
                    yield stream.Call(call.number, arguments=piece)
            case _:
                pass

    def _block_stop(self, data: JsonObject) -> Iterable[stream.Delta]:
        """The end of a block; a call whose arguments did not come in pieces is complete now."""
        call = self._block_by_index_and_type.get((as_count(data.get("index")), dialect.CALL))
        if call is not None:
            yield from _unsent_arguments(call)

    def _message_delta(self, data: JsonObject) -> Iterable[stream.Delta]:
        """The usage so far and, once the answer ends, the reason."""
        delta = as_object(data.get("delta"))
        yield from self._add_usage(as_object(data.get("usage")))
        reason = as_text(delta.get("stop_reason"))
        if reason:
            yield from self._finish_blocks()
            finish_reason, note = _REASONS.get(reason, FinishReason.STOP), _note(reason, delta)
            yield stream.Stop(finish_reason, note, as_text(delta.get("stop_sequence")))

    def _message_stop(self) -> Iterable[stream.Delta]:
        self.complete = True
        yield from self._finish_blocks()

    def _new_block(self, index: int | None, kind: str) -> _Block:
        """A block behind those so far; `index` is the API's number for it, None if it has none."""
        block = _Block(len(self._blocks), {"type": kind})
        self._blocks.append(block)
        self._block_by_index_and_type[index, kind] = block
        return block

    def _block_at(self, index: int | None, kind: str) -> _Block:
        """The block that grows, or a new one: some servers leave out `content_block_start`."""
        block = self._block_by_index_and_type.get((index, kind))
        return block or self._new_block(index, kind)

    def _grow(self, block: _Block, key: str, piece: str) -> Iterable[stream.Delta]:
        """Append a piece to the block's "text" or "thinking"."""
        block.data[key] = block.data.get(key, "") + piece
        if piece:
            yield stream.Text(piece) if key == "text" else stream.Thinking(piece)

    def _add_usage(self, usage: JsonObject) -> Iterable[stream.Delta]:
        """The usage so far: counts are totals, and a count that an event leaves out stays.

        Anthropic counts the prompt in three parts: new tokens, those that it has written to its
        cache, and those that it has read from there.
        """
        counts = {key: as_count(usage.get(key)) for key in _COUNTS}
        counted = {key: count for key, count in counts.items() if count is not None}
        if not counted:
            return
        self._usage |= counted
        uncached, written, read, completion = (self._usage.get(key) for key in _COUNTS)
        prompt = None if uncached is None else uncached + (written or 0) + (read or 0)
        yield stream.Usage(prompt, read, completion)

    def _finish_blocks(self) -> Iterable[stream.Delta]:
        """The last deltas, after all blocks have arrived; nothing the second time."""
        if self._has_finished_blocks:
            return
        self._has_finished_blocks = True
        for block in self._blocks:
            if block.kind == dialect.CALL:
                yield from _unsent_arguments(block)
        value = dialect.keepsake(self._model, [block.data for block in self._blocks])
        if value is not None:
            yield stream.Extra(value)


def _unsent_arguments(call: _Block) -> Iterable[stream.Delta]:
    """The arguments of a call that came with its beginning, not in pieces after it."""
    if not call.has_sent_arguments:
        call.has_sent_arguments = True
        yield stream.Call(call.number, arguments=json.dumps(call.data["input"]))


def _error(data: JsonObject) -> stream.Error:
    """The error with the status that its type has in answers that are not streamed."""
    error = as_object(data.get("error")) or data
    status = _STATUS.get(as_text(error.get("type"))) or as_error_status(error.get("code"))
    return stream.Error(data, status)


def _note(reason: str, delta: JsonObject) -> str:
    """What the user should know of the end; a refusal comes with its category and explanation."""
    note = _NOTES.get(reason, "")
    if reason != "refusal":
        return note
    details = as_object(delta.get("stop_details"))
    texts = [as_text(details.get("category")), as_text(details.get("explanation"))]
    reasons = [text for text in texts if text]
    return ": ".join([note, *reasons]) if reasons else f"{note}."


VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
"""The last version of the API with sampling parameters; used if a request has one."""

_PROPS = "/props"  # llama.cpp's server


class AnthropicAdapter(Adapter):
    """Sessions as requests to /v1/messages."""

    name: ClassVar[str] = dialect.API_NAME
    default_base_url: ClassVar[str] = "https://api.anthropic.com"

    def __init__(self, *, claude: bool = True) -> None:
        """Other models than `claude` behind the same API may print their calls."""
        self.prints_calls = not claude

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"x-api-key": api_key} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = chat_body(session, model, max_tokens)
        # later versions of the API have no temperature and the like
        has_sampling = any(name in body for name in SAMPLING_PARAMETERS)
        headers = {"anthropic-version": SAMPLING_VERSION if has_sampling else VERSION}
        if "block_binding" in body.get("thinking", {}):
            headers["anthropic-beta"] = dialect.BINDING_BETA
        return ApiRequest("/v1/messages", body, headers=headers)

    def usual_limit(self, model: ModelTraits) -> int:
        return output_limit(0, model, dialect.dialect_of(model.id))

    def decoder(self) -> stream.Decoder:
        return AnthropicDecoder()

    def models(self) -> ApiRequest:
        return _get("/v1/models?limit=1000")

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        entries = map(_entry, as_objects(body.get("data")))
        return [entry for entry in entries if entry.id]

    def probes(self, model: str) -> list[ApiRequest]:
        """The model's own page, and what llama.cpp's server tells of itself."""
        return [_get(f"/v1/models/{quote(model, safe='')}"), _get(_PROPS)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        if request.path != _PROPS:
            entry = _entry(body)
            return entry if entry.context_size else None
        return llama_cpp_model(body, model, source="the server's /props")


def _get(path: str) -> ApiRequest:
    return ApiRequest(path, method="GET", headers={"anthropic-version": VERSION}, stream=False)


def _entry(model: JsonObject) -> ModelEntry:
    image_input = as_object(as_object(model.get("capabilities")).get("image_input"))
    vision = as_flag(image_input.get("supported"))
    fields = ("max_tokens", *OUTPUT_FIELDS)
    return listed_model(as_text(model.get("id")), model, vision=vision, output_fields=fields)
