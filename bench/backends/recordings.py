"""Answers as the five APIs stream them, event by event."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.backends.text import TOOL, arguments, fragments

PLACE = b"@TEXT@"
"""The place of a chunk's text in a template."""

SSE = "text/event-stream; charset=utf-8"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer, each event as the bytes that the API sends.

    Between `before` and `after` there are chunks made from `template`, or `calls`.
    """

    content_type: str
    before: Sequence[bytes]
    template: bytes
    calls: Sequence[bytes]
    after: Sequence[bytes]

    def chunk(self, text: str) -> bytes:
        """A chunk with `text`."""
        return self.template.replace(PLACE, json.dumps(text, ensure_ascii=False)[1:-1].encode())


def recording(adapter: str, calls: int, size: int) -> Recording:
    """The answer on one API; the arguments of each call have `size` words."""
    return RECORDINGS[adapter](calls, size)


def openai_chat(calls: int, size: int) -> Recording:
    """Chat completions, as OpenAI sends them."""

    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _CHAT | {"choices": [choice], "usage": None, "obfuscation": "Xq2bR8"}

    def call(index: int) -> Iterable[Json]:
        head = {"index": index, "id": f"call_{index}", "type": "function"}
        yield chunk({"tool_calls": [head | {"function": {"name": TOOL, "arguments": ""}}]})
        for piece in fragments(size):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    usage = {"prompt_tokens": 120, "completion_tokens": 900, "total_tokens": 1020}
    return Recording(
        SSE,
        _sse([chunk({"role": "assistant", "content": "", "refusal": None})]),
        _sse([chunk({"content": PLACE.decode()})])[0],
        _sse(event for index in range(calls) for event in call(index)),
        [*_sse([chunk({}, "stop"), _CHAT | {"choices": [], "usage": usage}]), b"data: [DONE]\n\n"],
    )


def openai_responses(calls: int, size: int) -> Recording:
    """The responses API; it repeats an item's text at its end, which is shortened here."""
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": list[str](), "logprobs": list[str]()}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    more = {"logprobs": list[str](), "obfuscation": "Xq2bR8"}

    def call(index: int) -> Iterable[Json]:
        item = {"id": f"fc_{index}", "type": "function_call", "status": "in_progress"}
        item |= {"call_id": f"call_{index}", "name": TOOL, "arguments": ""}
        at = {"item_id": f"fc_{index}", "output_index": index + 1}
        yield {"type": "response.output_item.added", "output_index": index + 1, "item": item}
        for piece in fragments(size):
            delta = {"delta": piece, "obfuscation": "Xq2bR8"}
            yield {"type": "response.function_call_arguments.delta"} | at | delta
        whole = {"name": TOOL, "arguments": "".join(fragments(size))}
        yield {"type": "response.function_call_arguments.done"} | at | whole
        done = item | {"status": "completed"} | whole
        yield {"type": "response.output_item.done", "output_index": index + 1, "item": done}

    usage = {"input_tokens": 120, "output_tokens": 900, "total_tokens": 1020}
    usage |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    ended = _RESPONSE | {"status": "completed", "usage": usage}
    return Recording(
        SSE,
        _numbered(
            [
                {"type": "response.created", "response": _RESPONSE},
                {"type": "response.in_progress", "response": _RESPONSE},
                {
                    "type": "response.output_item.added",
                    "output_index": 0,
                    "item": answer | {"content": []},
                },
                {"type": "response.content_part.added"} | place | {"part": part},
            ]
        ),
        _numbered(
            [{"type": "response.output_text.delta"} | place | {"delta": PLACE.decode()} | more]
        )[0],
        _numbered(event for index in range(calls) for event in call(index)),
        _numbered([{"type": "response.completed", "response": ended}]),
    )


def anthropic(calls: int, size: int) -> Recording:
    """The Messages API."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": list[Json]()}
    message |= {"model": "claude-sonnet-4-5", "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 120, "output_tokens": 1}}

    def delta(index: int, kind: str, key: str, value: str) -> Json:
        content = {"type": kind, key: value}
        return {"type": "content_block_delta", "index": index, "delta": content}

    def call(index: int) -> Iterable[Json]:
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": TOOL, "input": Json()}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in fragments(size):
            yield delta(index, "input_json_delta", "partial_json", piece)
        yield {"type": "content_block_stop", "index": index}

    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    text = {"type": "text", "text": ""}
    return Recording(
        SSE,
        _named(
            [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": text},
                {"type": "ping"},
            ]
        ),
        _named([delta(0, "text_delta", "text", PLACE.decode())])[0],
        _named(event for index in range(calls) for event in call(index + 1)),
        _named(
            [
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 900}},
                {"type": "message_stop"},
            ]
        ),
    )


def gemini(calls: int, size: int) -> Recording:
    """generateContent; a call is sent whole."""

    def chunk(part: Json, **ended: str) -> Json:
        candidate = {"content": {"parts": [part], "role": "model"}, "index": 0} | ended
        return {"candidates": [candidate]} | _GEMINI

    call = chunk({"functionCall": {"name": TOOL, "args": arguments(size)}})
    return Recording(
        SSE,
        [],
        _sse([chunk({"text": PLACE.decode()})])[0],
        _sse([call] * calls),
        _sse([chunk({"text": ""}, finishReason="STOP")]),
    )


def ollama(calls: int, size: int) -> Recording:
    """/api/chat; a call is sent whole."""

    def line(message: Json, **more: Any) -> bytes:
        common = {"model": "qwen3", "created_at": "2026-11-20T10:00:00.123456789Z"}
        content = {"role": "assistant", "content": ""} | message
        return _json(common | {"message": content, "done": False} | more) + b"\n"

    call = line({"tool_calls": [{"function": {"name": TOOL, "arguments": arguments(size)}}]})
    counts = {"prompt_eval_count": 120, "eval_count": 900, "total_duration": 5, "eval_duration": 4}
    return Recording(
        "application/x-ndjson",
        [],
        line({"content": PLACE.decode()}),
        [call] * calls,
        [line({}, done=True, done_reason="stop", **counts)],
    )


RECORDINGS: dict[str, Callable[[int, int], Recording]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": ollama,
}
ADAPTERS = tuple(RECORDINGS)

_CHAT: Json = {
    "id": "chatcmpl-BQ1f6zXW2mPVtqDn3yqkKp8TzKYAe",
    "object": "chat.completion.chunk",
    "created": 1780000000,
    "model": "gpt-4.1-2025-04-14",
    "service_tier": "default",
    "system_fingerprint": "fp_44added55e",
}
_RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1780000000,
    "status": "in_progress",
    "model": "gpt-5.1",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
_GEMINI: Json = {
    "usageMetadata": {
        "promptTokenCount": 120,
        "candidatesTokenCount": 9,
        "totalTokenCount": 129,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 120}],
    },
    "modelVersion": "gemini-2.5-flash",
    "responseId": "q2bR8Xq2bR8",
}


def _named(events: Iterable[Json]) -> list[bytes]:
    return [f"event: {event['type']}\n".encode() + _data(event) for event in events]


def _numbered(events: Iterable[Json]) -> list[bytes]:
    return _named({"sequence_number": 7} | event for event in events)


def _sse(events: Iterable[Json]) -> list[bytes]:
    return list(map(_data, events))


def _data(event: Json) -> bytes:
    return b"data: " + _json(event) + b"\n\n"


def _json(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
