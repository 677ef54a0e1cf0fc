"""The official `openai` client against a scripted backend."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, Scripted, ask, joined, scripted, stream

MARKDOWN = "Hello **you**\n```py\nx = 1\n```\nbye"

ANSWER = r"""
chunk: 4
think: Let me see.
text: "Hello **you**\n```py\nx = 1\n```\nbye"
"""

CALLS = """
text: Looking.
call: read_file {"path": "ä.txt", "limit": 3}
call: get_time
---
text: It is noon.
"""

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read_file", "get_time")
]


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted(ANSWER) as running:
        yield running


@pytest.fixture
def calling() -> Iterator[Scripted]:
    with scripted(CALLS) as running:
        yield running


def test_answer_is_complete_and_names_the_real_model(server: Scripted) -> None:
    with server.client() as client:
        answer = ask(client)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", "gpt-4")
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", MARKDOWN)
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == answer.usage.total_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_stream_gives_the_same_text(server: Scripted) -> None:
    with server.client() as client:
        chunks = stream(client)
    assert joined(chunks) == MARKDOWN
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {(c.id, c.created, c.model, c.object) for c in chunks} == {
        (chunks[0].id, chunks[0].created, "gpt-4", "chat.completion.chunk")
    }
    assert all(c.usage is None for c in chunks)


def test_stream_ends_with_usage_when_asked(server: Scripted) -> None:
    with server.client() as client:
        whole = ask(client)
        chunks = stream(client, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(c.usage is None and c.choices for c in chunks[:-1])


def test_reasoning_is_told_only_when_asked_for(server: Scripted) -> None:
    with server.client() as client:
        silent = ask(client).choices[0].message
        loud = ask(client, reasoning_effort="low").choices[0].message
        kwargs = {"chat_template_kwargs": {"enable_thinking": True}}
        chunks = stream(client, extra_body=kwargs)
        silent_chunks = stream(client, reasoning_effort="none")
    assert (silent.model_extra or {}).get("reasoning_content") is None
    assert loud.model_extra is not None
    assert loud.model_extra["reasoning_content"] == "Let me see."
    assert (loud.content, joined(chunks), joined(silent_chunks)) == (MARKDOWN,) * 3
    extras = [c.choices[0].delta.model_extra or {} for c in chunks]
    assert "".join(e.get("reasoning_content", "") for e in extras) == "Let me see."
    assert not any(c.choices[0].delta.model_extra for c in silent_chunks)


def test_tool_round_trip(calling: Scripted) -> None:
    with calling.client() as client:
        first = ask(client, tools=TOOLS).choices[0]
        calls = first.message.tool_calls or []
        history: list[Any] = [
            *HI,
            first.message.model_dump(exclude_none=True),
            *({"role": "tool", "tool_call_id": c.id, "content": "12:00"} for c in calls),
        ]
        second = ask(client, messages=history, tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.content == "Looking."
    told = [c.model_dump()["function"] for c in calls]
    assert told == [
        {"name": "read_file", "arguments": '{"path": "ä.txt", "limit": 3}'},
        {"name": "get_time", "arguments": "{}"},
    ]
    assert second.message.content == "It is noon."
    assert calling.backend.requests == [1, 4]


def test_streamed_tool_calls(calling: Scripted) -> None:
    with calling.client() as client:
        chunks = stream(client, tools=TOOLS)
    deltas = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
    heads = [d for d in deltas if d.id]
    assert [(d.index, d.type) for d in heads] == [(0, "function"), (1, "function")]
    assert [d.function.name for d in heads if d.function] == ["read_file", "get_time"]
    arguments = ["", ""]
    for delta in deltas:
        assert delta.function is not None
        arguments[delta.index] += delta.function.arguments or ""
    assert arguments == ['{"path": "ä.txt", "limit": 3}', "{}"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert joined(chunks) == "Looking."


def test_one_call_at_most_when_parallel_calls_are_off(calling: Scripted) -> None:
    with calling.client() as client:
        answer = ask(client, tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert [c.model_dump()["function"]["name"] for c in answer.message.tool_calls or []] == [
        "read_file"
    ]


def test_content_is_null_beside_calls_alone() -> None:
    with scripted("call: get_time") as server, server.client() as client:
        message = ask(client, tools=TOOLS).choices[0].message
    assert message.content is None
    assert len(message.tool_calls or []) == 1


def test_an_empty_answer_is_a_string() -> None:
    with scripted("finish: stop") as server, server.client() as client:
        assert ask(client).choices[0].message.content == ""
        assert joined(stream(client)) == ""


def test_headers_let_no_proxy_hold_the_stream_back(server: Scripted) -> None:
    body = {"messages": HI, "stream": True}
    with httpx.stream("POST", server.url + CHAT, json=body, timeout=PATIENCE) as response:
        lines = [line for line in response.iter_lines() if line]
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-request-id"].startswith("req_")
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)


async def test_sixteen_clients_at_once(server: Scripted) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

        async def one(number: int) -> str:
            if number % 2:
                answer = await client.chat.completions.create(model="m", messages=HI)
                return answer.choices[0].message.content or ""
            parts = await client.chat.completions.create(model="m", messages=HI, stream=True)
            return joined([chunk async for chunk in parts])

        answers = await asyncio.gather(*(one(number) for number in range(16)))
    assert answers == [MARKDOWN] * 16
    assert server.backend.active == 0
