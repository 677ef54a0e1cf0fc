"""Gemini through the backend, beside Google's own client on the same stream."""

from typing import Any, cast

from google import genai
from google.genai import types

from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.endpoint import Endpoint
from shepherd.backends.api.gemini.wire import GeminiWire
from shepherd.backends.api.wire import ModelTraits
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.messages import JsonObject, Message
from tests.backends.api.gemini.official import check_body, chunk
from tests.backends.api.support import LIST, WRITE, Events, asking, options
from tests.backends.api.upstream import Reply, Upstream

MODEL = "gemini-3-pro-preview"
FIRST: JsonObject = {"name": "list_directory", "args": {"path": "Köln"}, "id": "fc-1"}
SECOND: JsonObject = {"name": "list_directory", "args": {"path": "."}}
USAGE: JsonObject = {"promptTokenCount": 90, "candidatesTokenCount": 7, "thoughtsTokenCount": 20}
CALLS = [
    chunk({"text": "I must look.", "thought": True}),
    chunk({"text": "Let me "}),
    chunk({"text": "look.", "thoughtSignature": "dGV4dA=="}),
    chunk(
        {"functionCall": FIRST, "thoughtSignature": "Y2FsbA=="},
        {"functionCall": SECOND},
        reason="STOP",
        usageMetadata=USAGE,
    ),
]
TEXT = [chunk({"text": "Two "}), chunk({"text": "files 🐑"}, reason="STOP")]


def reply(chunks: list[JsonObject]) -> Reply:
    return Reply.sse(chunks, done=False)


def backend_at(up: Upstream) -> ApiBackend:
    traits = ModelTraits(MODEL, 1_000_000, thinking=True)
    endpoint = Endpoint(up.url, "secret", name="gemini")
    return ApiBackend(endpoint, GeminiWire(), traits, options=options())


async def test_a_turn_with_calls() -> None:
    session = asking(LIST, WRITE)
    session.thinking = True
    async with Upstream([reply(CALLS), reply(TEXT)]) as up:
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
    assert request.path == f"/v1beta/models/{MODEL}:streamGenerateContent"
    assert request.query == {"alt": "sse"}
    assert request.headers["x-goog-api-key"] == "secret"
    check_body(request.json)
    assert request.json["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Let me "},
                {"text": "look.", "thoughtSignature": "dGV4dA=="},
                {"functionCall": FIRST, "thoughtSignature": "Y2FsbA=="},
                {"functionCall": SECOND},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "fc-1",
                        "name": "list_directory",
                        "response": {"output": "of Köln"},
                    }
                },
                {"functionResponse": {"name": "list_directory", "response": {"output": "of ."}}},
            ],
        },
    ]


async def official_parts(url: str) -> list[types.Part]:
    """What Google's client makes of the answer at `url`."""
    there = types.HttpOptions(base_url=url, api_version="v1beta")
    client = genai.Client(api_key="k", http_options=there)
    parts: list[types.Part] = []
    stream = cast(Any, client.aio.models).generate_content_stream  # its types are partial
    async for response in await stream(model=MODEL, contents="hi"):
        for candidate in cast(types.GenerateContentResponse, response).candidates or []:
            parts += (candidate.content and candidate.content.parts) or []
    await client.aio.aclose()
    return parts


async def test_googles_own_client_reads_the_same() -> None:
    for chunks in (CALLS, TEXT):
        async with Upstream([reply(chunks), reply(chunks)]) as up:
            backend = backend_at(up)
            ours = await backend.generate_from_session(asking(LIST), Events())
            await backend.aclose()
            parts = await official_parts(up.url)
        said = [part.text or "" for part in parts if not part.thought]
        called = [part.function_call for part in parts if part.function_call]
        assert ours.message.content == "".join(said)
        theirs = [(call.name, call.args) for call in called]
        assert [(call.name, call.arguments) for call in ours.message.tool_calls] == theirs
        assert up.requests[0].path == up.requests[1].path
        assert up.requests[0].query == up.requests[1].query


async def test_a_filtered_answer_says_why() -> None:
    cut = [chunk({"text": "Well"}), chunk(reason="SAFETY")]
    async with Upstream([reply(cut)]) as up:
        backend, events = backend_at(up), Events()
        generation = await backend.generate_from_session(asking(), events)
        await backend.aclose()
    assert generation.message.content == "Well"
    assert events.of(CallbackEvent.SYSTEM) == ["Gemini stopped its answer: its safety filter"]
    assert [name for event, _, name, _ in events.all if event is CallbackEvent.SYSTEM] == [
        Topic.WARNING
    ]


async def test_the_window_is_the_lists() -> None:
    item = {"name": f"models/{MODEL}", "inputTokenLimit": 1048576, "outputTokenLimit": 65536}
    async with Upstream([Reply({"models": [item]}), Reply(item)]) as up:
        backend = await ApiBackend.connect(Endpoint(up.url), GeminiWire(), ModelTraits(MODEL))
        await backend.aclose()
    assert (backend.window.size, backend.window.output_limit) == (1048576, 65536)
    assert "inputTokenLimit" in backend.window.source
