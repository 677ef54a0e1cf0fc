"""Gemini through the backend; see tests/backends/conformance for what holds for all."""

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.gemini import GeminiAdapter
from shepherd.backends.api.http.client import Endpoint
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
    return ApiBackend(endpoint, GeminiAdapter(), traits, options=options())


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
        backend = await ApiBackend.connect(Endpoint(up.url), GeminiAdapter(), ModelTraits(MODEL))
        await backend.aclose()
    assert (backend.window.size, backend.window.output_limit) == (1048576, 65536)
    assert "inputTokenLimit" in backend.window.source
