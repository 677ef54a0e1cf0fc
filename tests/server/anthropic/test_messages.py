"""Anthropic's own client against a scripted backend."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import beta_tool

from shepherd.backends.script import parse_script
from shepherd.messages import Role
from tests.server.anthropic.support import (
    HI,
    MESSAGES,
    READ,
    THINK,
    Server,
    ask,
    client_of,
    events_of,
    post,
    stream,
    without_ids,
)
from tests.server.harness import scripted

ANSWER = r"""
think: Let me see.
text: "Hello **you**\n```py\nx = 1\n```\nbye"
call: read_file {"path": "ä.txt"}
call: read_file
"""
MARKDOWN = "Hello **you**\n```py\nx = 1\n```\nbye"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scripted(ANSWER) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    with client_of(server) as opened:
        yield opened


def test_an_answer_is_complete_under_the_name_that_was_sent(client: anthropic.Anthropic) -> None:
    answer = ask(client, tools=[READ])
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "claude")
    assert [block.type for block in answer.content] == ["text", "tool_use", "tool_use"]
    text, first, second = (block.to_dict() for block in answer.content)
    assert text == {"type": "text", "text": MARKDOWN}
    assert (first["name"], first["input"]) == ("read_file", {"path": "ä.txt"})
    assert (second["input"], first["id"] != second["id"]) == ({}, True)
    assert (answer.stop_reason, answer.stop_sequence) == ("tool_use", None)
    assert answer.usage.cache_read_input_tokens == 0
    assert answer.usage.input_tokens > 0
    assert getattr(answer, "_request_id", "").startswith("req_")


@pytest.mark.parametrize("options", [{}, {"thinking": THINK}])
def test_a_stream_gives_the_same(
    server: Server, client: anthropic.Anthropic, options: dict[str, Any]
) -> None:
    server.backend.script = parse_script(f"chunk: 3\n{ANSWER}")
    whole = ask(client, tools=[READ], **options)
    raw = post(server, {"stream": True, "tools": [READ]} | options)
    assert raw.headers["content-type"] == "text/event-stream; charset=utf-8"
    events_of(raw.text)
    assert without_ids(stream(client, tools=[READ], **options)) == without_ids(whole)


def test_reasoning_comes_only_if_it_is_wanted(client: anthropic.Anthropic) -> None:
    for options in (
        {},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "between_tools"}},
    ):
        assert ask(client, **options).content[0].type == "text"
        assert stream(client, **options).content[0].type == "text"
    for kind in (THINK, {"type": "adaptive"}):
        block = ask(client, thinking=kind).content[0]
        assert block.type == "thinking"
        assert block.thinking == "Let me see."
        assert block.signature
    details = ask(client, thinking=THINK).usage.output_tokens_details
    assert details is not None
    assert details.thinking_tokens > 0


def test_one_call_at_most(client: anthropic.Anthropic) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    for answer in (
        ask(client, tools=[READ], tool_choice=choice),
        stream(client, tools=[READ], tool_choice=choice),
    ):
        assert [b.type for b in answer.content] == ["text", "tool_use"]


def test_the_client_s_own_loop_of_tools() -> None:
    calls: list[str] = []

    @beta_tool
    def read_file(path: str) -> str:
        """Read a file.

        Args:
            path: The file.
        """
        calls.append(path)
        return "It is noon."

    script = 'think: hm\ncall: read_file {"path": "a"}\n---\ntext: Done.'
    with scripted(script) as server, client_of(server) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=50, messages=HI, tools=[read_file], thinking={"type": "adaptive"}
        )
        last = runner.until_done()
    assert calls == ["a"]
    assert [block.to_dict() for block in last.content] == [{"type": "text", "text": "Done."}]
    assert server.backend.requests == [1, 3]


def test_a_stop_sequence_is_named() -> None:
    script = "chunk: 3\ntext: one two END three"
    with scripted(script) as server, client_of(server) as client:
        for answer in (
            ask(client, stop_sequences=["never", "END"]),
            stream(client, stop_sequences=["never", "END"]),
        ):
            assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")
            assert answer.content[0].to_dict()["text"] == "one two "
        other = ask(client, stop_sequences=["never"])
    assert (other.stop_reason, other.stop_sequence) == ("end_turn", None)


def test_limits() -> None:
    script = "context: 30\ntext: one two three\nfinish: length"
    with scripted("text: one two three") as server, client_of(server) as client:
        assert ask(client, max_tokens=2).stop_reason == "max_tokens"
        assert stream(client, max_tokens=2).stop_reason == "max_tokens"
        for empty in (ask(client, max_tokens=0), stream(client, max_tokens=0)):
            assert (empty.content, empty.stop_reason) == ([], "max_tokens")
            assert empty.usage.output_tokens == 0
    with scripted(script) as server, client_of(server) as client:
        messages = [{"role": "user", "content": "word " * 18}]
        assert ask(client, messages=messages).stop_reason == "max_tokens"
    with scripted(script.replace("30", "25")) as server, client_of(server) as client:
        answer = ask(client, messages=messages)
    assert answer.stop_reason == "model_context_window_exceeded"


def test_an_empty_answer_has_no_blocks() -> None:
    with scripted("finish: stop") as server, client_of(server) as client:
        assert ask(client).content == stream(client).content == []


def test_edits_of_the_context_are_answered(server: Server) -> None:
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    whole = post(server, {"context_management": edits}).json()
    assert whole["context_management"] == {"applied_edits": []}
    events = events_of(post(server, {"context_management": edits, "stream": True}).text)
    assert events[-2]["context_management"] == {"applied_edits": []}
    assert "context_management" not in post(server, {}).json()


def test_the_query_and_unknown_fields_change_nothing(server: Server) -> None:
    plain = post(server, {}, f"{MESSAGES}?beta=true").json()
    extras = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "cache_control": {"type": "ephemeral"},
        "inference_geo": "eu",
        "speed": "standard",
        "diagnostics": None,
        "anthropic_internal": {"a": [1]},
    }
    other = post(server, extras).json()
    assert [b["type"] for b in plain["content"]] == [b["type"] for b in other["content"]]
    assert plain["usage"] == other["usage"]


def test_what_a_backend_gets_of_a_conversation(server: Server, client: anthropic.Anthropic) -> None:
    sessions: list[Any] = []
    prefill = server.backend.prefill_session

    async def listen(session: Any, callback: Any) -> Any:
        sessions.append(session)
        return await prefill(session, callback)

    server.backend.prefill_session = listen
    try:
        first = ask(client, tools=[READ], thinking=THINK)
        uses = [b for b in first.content if b.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": u.id, "content": f"r{i}", "is_error": i == 1}
            for i, u in enumerate(uses)
        ]
        messages = [*HI, first.to_param(), {"role": "user", "content": results}]
        ask(client, tools=[READ], thinking=THINK, messages=messages)
    finally:
        server.backend.prefill_session = prefill
    before, after = sessions
    assert after.messages[0] == before.messages[0]
    assistant, *rest = after.messages[1:]
    assert (assistant.content, assistant.reasoning) == (MARKDOWN, "Let me see.")
    assert [call.arguments for call in assistant.tool_calls] == [{"path": "ä.txt"}, {}]
    assert [(m.role, m.content, m.name) for m in rest] == [
        (Role.TOOL, "r0", "read_file"),
        (Role.TOOL, "Error: r1", "read_file"),
    ]
