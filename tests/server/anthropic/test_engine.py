"""The Messages API over the in-process engine and the built-in model, as Claude Code uses it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message

from tests.server.anthropic.support import COUNT, HI, READ, ask, client_of, events_of, post, stream
from tests.server.engine import Engine, engine

CACHED = {"type": "ephemeral"}
LIST = {
    "name": "list_directory",
    "description": "List a directory.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def claude_code(question: str, session: str) -> dict[str, Any]:
    """The first request of a session of Claude Code 2.1, with shorter texts."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.197.{session}; cc_entrypoint=sdk-cli;"
    reminder = "<system-reminder>\nToday's date is 2026-11-22.\n</system-reminder>"
    tools = [{**READ, "name": f"tool_{n}", "description": "Do a thing."} for n in range(5)]
    return {
        "model": "claude-opus-4-8",
        "max_tokens": 64,
        "system": [
            text(billing),
            text("You are an agent.", cache_control=CACHED),
            text("\nHelp the user with software.\nThe directory is /src.", cache_control=CACHED),
        ],
        "messages": [
            {"role": "user", "content": [text(reminder), text(question, cache_control=CACHED)]},
            {"role": "system", "content": "Agents that you can start:\n- explore: reads files."},
        ],
        "tools": [LIST, *tools],
        "metadata": {"user_id": json.dumps({"session_id": session})},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def answered(server: Engine, body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The blocks that a client joins of the stream, and the usage."""
    response = post(server, body)
    assert response.status_code == 200, response.text
    blocks: list[dict[str, Any]] = []
    events = events_of(response.text)
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append({**block})
            case {"delta": {"type": "text_delta", "text": piece}}:
                blocks[-1]["text"] += piece
            case {"delta": {"type": "thinking_delta", "thinking": piece}}:
                blocks[-1]["thinking"] += piece
            case {"delta": {"type": "signature_delta", "signature": signature}}:
                blocks[-1]["signature"] = signature
            case {"delta": {"type": "input_json_delta", "partial_json": arguments}}:
                blocks[-1]["input"] = json.loads(arguments)
            case _:
                pass
    return blocks, events[-2]["usage"]


def text_of(answer: Message) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")


def prompt_tokens(usage: dict[str, int]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_three_sessions_of_claude_code_share_their_beginning(server: Engine) -> None:
    for session in ("aaa", "bbb", "ccc"):
        first = claude_code("List the files in src", session)
        choice = {"type": "tool", "name": "list_directory"}  # a small model may not call it
        blocks, usage = answered(server, first | {"tool_choice": choice})
        if session != "aaa":
            assert usage["input_tokens"] < 8
        calls = [block for block in blocks if block["type"] == "tool_use"]
        assert [call["name"] for call in calls] == ["list_directory"]
        results = [
            {"type": "tool_result", "tool_use_id": c["id"], "content": "main.py", "is_error": False}
            for c in calls
        ]
        history = [
            *first["messages"],
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ]
        again, more = answered(server, first | {"messages": history})
        assert more["cache_read_input_tokens"] >= prompt_tokens(usage) + usage["output_tokens"] - 2
        assert again


def test_another_question_reads_all_before_it_from_the_cache(server: Engine) -> None:
    before = post(server, claude_code("", "aaa") | {"messages": HI}, COUNT).json()["input_tokens"]
    answered(server, claude_code("List the files in src", "aaa"))
    _, usage = answered(server, claude_code("What is in main.py?", "ddd"))
    assert usage["cache_read_input_tokens"] >= before - 8


def test_counts_are_exact(server: Engine) -> None:
    body = claude_code("List the files in src", "eee")
    counted = post(server, body, COUNT).json()["input_tokens"]
    _, usage = answered(server, body)
    assert counted == prompt_tokens(usage)


def test_a_whole_answer_and_its_stream_are_the_same(server: Engine) -> None:
    with client_of(server) as client:
        whole, streamed = ask(client), stream(client)
        assert whole.content[0].to_dict() == streamed.content[0].to_dict()
        words = text_of(whole).split(" ")
        stopped = ask(client, stop_sequences=[f" {words[1]}"])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", f" {words[1]}")
        assert text_of(stopped) == words[0]
        empty = ask(client, max_tokens=0, messages=[{"role": "user", "content": "Read this."}])
        assert (empty.content, empty.stop_reason) == ([], "max_tokens")


def test_an_answer_that_was_begun_is_continued(server: Engine) -> None:
    begun = [*HI, {"role": "assistant", "content": "I am"}]
    with client_of(server) as client:
        answer = ask(client, messages=begun, max_tokens=8)
        again = ask(client, messages=begun, max_tokens=0)
    assert text_of(answer)
    assert again.usage.cache_read_input_tokens


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "list_directory"}])
def test_forced_calls_and_formats(server: Engine, choice: Any) -> None:
    with client_of(server) as client:
        answer = ask(client, tools=[LIST], tool_choice=choice)
        schema = {
            "type": "object",
            "properties": {"mood": {"enum": ["good", "bad"]}},
            "required": ["mood"],
            "additionalProperties": False,
        }
        formatted = ask(client, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert answer.stop_reason == "tool_use"
    assert {b.name for b in answer.content if b.type == "tool_use"} == {"list_directory"}
    assert json.loads(text_of(formatted))["mood"] in ("good", "bad")
