"""A turn with tools and thoughts through the whole backend, over real HTTP."""

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.events import CallbackEvent, Event, FinishReason
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.session import Session
from tests.backends.api.anthropic.schema import check_event
from tests.backends.api.anthropic.streams import (
    MODEL,
    answer,
    call,
    ended,
    redacted,
    started,
    text,
    thought,
)
from tests.backends.api.upstream import Reply, Upstream
from tests.flat_events import flat

FIRST = answer(
    thought(0, "sig-1", "Both files, ", "then."),
    redacted(1, "opaque"),
    text(2, "I read ", "them."),
    call(3, "toolu_1", "read", '{"path"', ': "a"}'),
    call(4, "toolu_2", "read", '{"path": "b"}'),
)
SECOND = [
    check_event(event)
    for event in [started(cache_read_input_tokens=90), *text(0, "They ", "differ."), *ended()]
]


def stream(events: list[JsonObject]) -> Reply:
    return Reply.sse([(event["type"], event) for event in events], done=False)


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if kind is not CallbackEvent.STATS:
            self.events.append((kind.value, f"{name}{content}"))
        return True


def backend(upstream: Upstream) -> ApiBackend:
    endpoint = Endpoint(upstream.url, "sk-1", name="claude")
    return ApiBackend(endpoint, AnthropicAdapter(), ModelTraits(MODEL, thinking=True))


def question() -> Session:
    tools = [ToolSpec("read", "Reads a file.")]
    return Session("Be brief.", [Message.user("Compare a and b.")], tools, thinking=True)


async def test_a_turn_with_tools_thoughts_and_signatures() -> None:
    async with Upstream([stream(FIRST), stream(SECOND)]) as upstream:
        claude, session, listener = backend(upstream), question(), Listener()
        first = await claude.generate_from_session(session, listener)
        session.add(first.message)
        for made, result in zip(first.message.tool_calls, ("1", "Error: none"), strict=True):
            session.add(Message.tool(made, result))
        second = await claude.generate_from_session(session, listener)
        await claude.aclose()
    assert first.finish_reason is FinishReason.TOOL_CALLS
    assert (second.message.content, second.finish_reason) == ("They differ.", FinishReason.STOP)
    assert (second.stats.prompt_tokens, second.stats.cached_tokens) == (100, 90)
    text_events = ("thinking", "content")
    joined = {k: "".join(c for e, c in listener.events if e == k) for k in text_events}
    assert joined == {"thinking": "Both files, then.", "content": "I read them.They differ."}
    assert [event for event in listener.events if event[0] not in text_events] == [
        ("stop", "tool_calls"),
        ("tool_call", 'read{"path": "a"}'),
        ("tool_call", 'read{"path": "b"}'),
        ("stop", "stop"),
    ]
    asked, told = upstream.requests
    assert (asked.method, asked.path) == ("POST", "/v1/messages")
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (
        "sk-1",
        "2026-10-21",
    )
    assert told.json["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Both files, then.", "signature": "sig-1"},
                {"type": "redacted_thinking", "data": "opaque"},
                {"type": "text", "text": "I read them."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "Error: none",
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        },
    ]


async def test_a_stream_that_ends_before_its_last_event_was_cut_off() -> None:
    """Half a thought can't go back: its signature has not come."""
    async with Upstream([stream(FIRST[:4])]) as upstream:
        claude = backend(upstream)
        generation = await claude.generate_from_session(question(), Listener())
        await claude.aclose()
    assert generation.finish_reason is FinishReason.ERROR
    assert generation.message.reasoning == "Both files, "
    assert generation.message.extra == {}


async def test_an_overloaded_provider_is_asked_again() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    busy = Reply.sse([("error", overloaded)], done=False)
    async with Upstream([busy, stream(SECOND)]) as upstream:
        claude = backend(upstream)
        generation = await claude.generate_from_session(question(), Listener())
        await claude.aclose()
    assert generation.message.content == "They differ."
    assert len(upstream.requests) == 2
