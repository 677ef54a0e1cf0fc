"""Ollama through the backend; see tests/backends/conformance for what holds for all."""

import pytest

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.ollama import OllamaAdapter
from shepherd.errors import ContextFullError
from shepherd.events import FinishReason
from shepherd.messages import JsonObject, Message
from tests.backends.api.ollama.official import check_body, line
from tests.backends.api.support import LIST, Events, asking, options
from tests.backends.api.upstream import Reply, Upstream

CALLS = [
    line(thinking="I must look."),
    line("Let me look."),
    line(tool_calls=[{"function": {"name": "list_directory", "arguments": {"path": "Köln"}}}]),
    line(tool_calls=[{"function": {"name": "list_directory", "arguments": {"path": "."}}}]),
    line(done=True, done_reason="stop", prompt_eval_count=90, eval_count=27),
]
TEXT = [line("Two "), line("files 🐑"), line(done=True, done_reason="stop", eval_count=5)]
FULL = (
    '{"error":{"code":400,"message":"request (8889 tokens) exceeds the available context size '
    '(4096 tokens), try increasing it","type":"exceed_context_size_error"}}'
)


def backend_at(up: Upstream) -> ApiBackend:
    traits = ModelTraits("qwen3", 4096, thinking=True)
    return ApiBackend(Endpoint(up.url, name="local"), OllamaAdapter(), traits, options=options())


async def test_a_turn_with_calls() -> None:
    session = asking(LIST)
    session.thinking = True
    async with Upstream([Reply.ndjson(CALLS), Reply.ndjson(TEXT)]) as up:
        backend, events = backend_at(up), Events()
        asked = await backend.generate_from_session(session, events)
        session.add(asked.message)
        for call in reversed(asked.message.tool_calls):
            session.add(Message.tool(call, f"of {call.arguments['path']}"))
        answered = await backend.generate_from_session(session, events)
        await backend.aclose()
    assert asked.finish_reason is FinishReason.TOOL_CALLS
    assert (asked.message.content, asked.message.reasoning) == ("Let me look.", "I must look.")
    assert (asked.stats.prompt_tokens, asked.stats.completion_tokens) == (90, 27)
    assert answered.message.content == "Two files 🐑"
    request = up.requests[1]
    assert (request.path, request.json["think"]) == ("/api/chat", True)
    assert request.json["options"] == {"num_ctx": 4096}
    assert [message["role"] for message in check_body(request.json)] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert [m["content"] for m in request.json["messages"][2:]] == ["of Köln", "of ."]


async def test_a_full_context_is_told_with_its_numbers() -> None:
    async with Upstream([Reply({"error": FULL}, status=400)]) as up:
        backend = backend_at(up)
        with pytest.raises(ContextFullError) as full:
            await backend.generate_from_session(asking(), Events())
        await backend.aclose()
    assert (full.value.prompt_tokens, full.value.tokens_over) == (8889, 8889 - 4096)


async def test_the_window_is_the_loaded_one_before_any_other() -> None:
    tags: JsonObject = {"models": [{"name": "qwen3:latest", "model": "qwen3:latest"}]}
    loaded: JsonObject = {"models": [{"name": "qwen3:latest", "context_length": 16384}]}
    shown: JsonObject = {"model_info": {"qwen3.context_length": 40960}, "parameters": ""}
    for replies, size in (
        ([Reply(tags), Reply(loaded)], 16384),
        ([Reply(tags), Reply({"models": []}), Reply(shown)], 32768),
    ):
        async with Upstream(replies) as up:
            backend = await ApiBackend.connect(
                Endpoint(up.url), OllamaAdapter(), ModelTraits("qwen3"), options=options()
            )
            await backend.aclose()
        assert backend.window.size == size
