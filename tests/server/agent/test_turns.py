"""The agent behind the APIs: tools that the server runs, and those of the client."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from shepherd.config.section import ApproveMode, ShowToolCalls
from shepherd.messages import Role
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.tools.permissions.rules import Decision, Rule
from tests.patience import PATIENCE
from tests.server.agent.support import (
    READ,
    SYSTEM,
    WEATHER,
    Recorded,
    agent_of,
    directory,
    runner,
    serve,
)
from tests.server.harness import CHAT, HI, ask, joined, stream

TWO_ROUNDS = f"""
think: a note will say
text: I look.
{READ}
---
text: The milk.
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return directory(tmp_path)


@pytest.fixture
def server(work: Path) -> Iterator[Recorded]:
    with serve(TWO_ROUNDS, agent_of(runner(work))) as running:
        yield running


def test_the_server_runs_its_tools_and_answers_once(server: Recorded) -> None:
    with server.client() as client:
        answer = ask(client)
    choice, usage = answer.choices[0], answer.usage
    assert choice.message.content == "I look.\n\nThe milk."
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    first, second = server.backend.prompts
    assert (first.roles, second.roles) == ("u", "uat")
    assert second.messages[2].content == "remember the milk"
    assert first.system == SYSTEM
    assert "read_file" in [tool.name for tool in first.tools]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (11 + 40, 7 + 3)


def test_a_stream_is_the_whole_answer(server: Recorded) -> None:
    with server.client() as client:
        whole = ask(client, reasoning_effort="high")
        chunks = stream(client, reasoning_effort="high", stream_options={"include_usage": True})
    assert joined(chunks) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]


def test_the_next_request_continues_the_hidden_rounds(server: Recorded) -> None:
    history: list[Any] = [{"role": "system", "content": "Be brief."}, *HI]
    with server.client() as client:
        for turn in range(2):
            answer = ask(client, messages=history)
            content = answer.choices[0].message.content
            history += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": f"and {turn}?"},
            ]
    prompts = server.backend.prompts
    assert [prompt.roles for prompt in prompts] == ["u", "uat", "uatau", "uatauat"]
    assert prompts[2].messages[:3] == prompts[1].messages
    assert prompts[0].system == "Be brief."


def test_hidden_rounds_are_those_of_one_key_and_one_history(server: Recorded) -> None:
    answer = {"role": "assistant", "content": "I look.\n\nThe milk."}
    more = {"role": "user", "content": "and?"}
    other: Any = [{"role": "user", "content": "another question"}]
    with server.client() as client:
        ask(client)
        ask(client, messages=[*other, answer, more])
        ask(client, messages=[*HI, answer, more])
    assert [prompt.roles for prompt in server.backend.prompts[2::2]] == ["uau", "uatau"]


def test_hidden_rounds_belong_to_the_key(work: Path, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    mine, other = keys.add("mine"), keys.add("other")
    history: list[Any] = [*HI, {"role": "assistant", "content": "I look.\n\nThe milk."}, *HI]
    with serve(TWO_ROUNDS, agent_of(runner(work)), keys) as server:
        for key, messages in ((mine, HI), (other, history), (mine, history)):
            with server.client(key) as client:
                ask(client, messages=messages)
        assert [prompt.roles for prompt in server.backend.prompts[2::2]] == ["uau", "uatau"]


def test_rounds_that_are_forgotten_are_the_visible_answers(work: Path) -> None:
    agent = agent_of(runner(work), rounds=HiddenRounds(max_bytes=100))
    answer: Any = {"role": "assistant", "content": "I look.\n\nThe milk."}
    with serve(TWO_ROUNDS, agent) as server, server.client() as client:
        ask(client)
        ask(client, messages=[*HI, answer, *HI])
        assert server.backend.prompts[2].roles == "uau"


MIXED = f"""
text: Both.
{READ}
call: weather {{"place": "Rome"}}
---
text: Sunny milk.
"""


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_s_tool_ends_the_turn_after_ours_ran(work: Path, *, streaming: bool) -> None:
    with serve(MIXED, agent_of(runner(work))) as server, server.client() as client:
        if streaming:
            chunks = stream(client, tools=[WEATHER])
            deltas = [c.choices[0].delta for c in chunks if c.choices]
            calls = [call for delta in deltas for call in delta.tool_calls or []]
            assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "tool_calls"
            head, rest = calls
            call_id, name = head.id, head.function.name if head.function else ""
            arguments = rest.function.arguments if rest.function else ""
        else:
            choice = ask(client, tools=[WEATHER]).choices[0]
            assert choice.finish_reason == "tool_calls"
            (call,) = choice.message.tool_calls or []
            assert call.type == "function"
            call_id, name, arguments = call.id, call.function.name, call.function.arguments
        assert (name, arguments) == ("weather", '{"place": "Rome"}')
        function = {"name": name, "arguments": arguments}
        history: list[Any] = [
            *HI,
            {
                "role": "assistant",
                "content": "Both.",
                "tool_calls": [{"id": "mine", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "mine", "content": "sun"},
        ]
        assert call_id
        answer = ask(client, tools=[WEATHER], messages=history)
    assert answer.choices[0].message.content == "Sunny milk."
    last = server.backend.prompts[-1].messages
    assert [message.role for message in last[1:]] == [Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert [call.id for call in last[1].tool_calls] == [last[2].tool_call_id, "mine"]
    assert [message.content for message in last[2:]] == ["remember the milk", "sun"]


def test_the_client_s_tool_of_the_same_name_is_the_client_s(work: Path) -> None:
    mine = {"type": "function", "function": {"name": "read_file", "description": "mine"}}
    with serve(TWO_ROUNDS, agent_of(runner(work))) as server, server.client() as client:
        choice = ask(client, tools=[mine]).choices[0]
    assert choice.finish_reason == "tool_calls"
    (prompt,) = server.backend.prompts
    assert [tool.description for tool in prompt.tools if tool.name == "read_file"] == ["mine"]


@pytest.mark.parametrize("show", ShowToolCalls)
def test_the_answer_tells_which_tools_ran(work: Path, show: ShowToolCalls) -> None:
    script = f'{READ}\ncall: read_file {{"path": "../`x`"}}\n---\ntext: Done.'
    with serve(script, agent_of(runner(work), show)) as server, server.client() as client:
        whole = ask(client, reasoning_effort="high").choices[0].message
        chunks = stream(client, reasoning_effort="high")
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks]
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert reasoning == (getattr(whole, "reasoning_content", None) or "")
    assert joined(chunks) == whole.content
    lines = (
        '> **read_file** `{"path": "notes.txt"}` → 1 line\n\n'
        '> **read_file** `` {"path": "../`x`"} `` → `Error: '
    )
    shown = {"off": "", "reasoning": reasoning, "content": whole.content or ""}[show]
    assert shown.startswith(lines if show is not ShowToolCalls.OFF else "")
    assert (lines in reasoning + (whole.content or "")) is (show is not ShowToolCalls.OFF)
    assert (whole.content or "").endswith("Done.")


def test_the_rounds_are_limited(work: Path) -> None:
    agent = agent_of(runner(work), ShowToolCalls.CONTENT, max_rounds=3)
    with serve(f"{READ}\n---\ncall: get_date {{}}", agent) as server, server.client() as client:
        choice = ask(client).choices[0]
    assert choice.finish_reason == "length"
    assert (choice.message.content or "").endswith("> Stopped after 3 rounds of tool calls.")
    assert len(server.backend.prompts) == 3
    assert "No more calls" in server.backend.prompts[2].messages[-1].content
    assert "No more calls" not in server.backend.prompts[1].messages[-1].content


def test_one_limit_of_tokens_counts_for_all_rounds(work: Path) -> None:
    script = f"text: one two three\n{READ}\n---\ntext: four five six"
    with serve(script, agent_of(runner(work))) as server, server.client() as client:
        choice = ask(client, max_tokens=3).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("length", "one two three")
    assert len(server.backend.prompts) == 1


def test_several_answers_are_refused_by_name(server: Recorded) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as refused:
        ask(client, n=2)
    assert (refused.value.param, refused.value.code) == ("n", "unsupported_parameter")
    with server.client() as client:
        assert len(ask(client, n=2, extra_headers={"x-shepherd-tools": "off"}).choices) == 2


@pytest.mark.parametrize("options", [{"tool_choice": "none"}, {"off": True}])
def test_a_client_can_do_without_our_tools(server: Recorded, options: dict[str, Any]) -> None:
    off = options.pop("off", False)
    headers = {"x-shepherd-tools": "off"} if off else {}
    with server.client() as client:
        ask(client, extra_headers=headers, **options)
    (prompt,) = server.backend.prompts
    assert not prompt.tools


def test_a_header_with_another_value_is_refused(server: Recorded) -> None:
    for name in ("x-shepherd-tools", "x-shepherd-truncation"):
        response = httpx.post(
            server.url + CHAT, json={"messages": HI}, headers={name: "all"}, timeout=PATIENCE
        )
        assert response.status_code == 400
        assert response.json()["error"]["param"] == name


ATTACKS = (
    'call: execute_command {"command": "touch made"}\n'
    'call: write_file {"path": "new.txt", "content": "x"}\n'
    'call: read_file {"path": "../secret.txt"}\n'
    'call: read_file {"path": "notes.txt"}\n'
    "---\ntext: Done."
)


def test_rules_hold_and_nobody_approves(work: Path) -> None:
    (work.parent / "secret.txt").write_text("a secret")
    denied = Rule("read", str(work / "notes.txt"), Decision.DENY)
    before = sorted(path.name for path in work.iterdir())
    with serve(ATTACKS, agent_of(runner(work, [denied]))) as server, server.client() as client:
        ask(client, extra_headers={"x-shepherd-approve": "all"}, extra_body={"approve": "all"})
    results = [m.content for m in server.backend.prompts[1].messages if m.role is Role.TOOL]
    assert len(results) == 4
    assert all(result.startswith("Error: denied") for result in results)
    assert sorted(path.name for path in work.iterdir()) == before


def test_calls_in_the_history_are_not_run(work: Path) -> None:
    function = {"name": "write_file", "arguments": '{"path": "new.txt", "content": "x"}'}
    history: list[Any] = [
        *HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
    ]
    tools = runner(work, mode=ApproveMode.ALL)
    with serve("text: Done.", agent_of(tools)) as server, server.client() as client:
        ask(client, messages=history)
    assert not (work / "new.txt").exists()


@pytest.mark.parametrize("streaming", [False, True])
def test_hanging_up_stops_the_tool(work: Path, *, streaming: bool) -> None:
    begun = work / "begun"
    script = 'call: execute_command {"command": "echo $$ > pid && mv pid begun && exec sleep 1000"}'
    tools = runner(work, mode=ApproveMode.ALL)
    with serve(script, agent_of(tools)) as server:
        with server.connect_and_post({"messages": HI, "stream": streaming}):
            server.until(begun.exists)
            assert server.backend.active == 0  # the model is free while the tool runs
            process = int(begun.read_text())
            os.kill(process, 0)
        server.until(lambda: server.tasks == 0)
        server.until(lambda: _ended(process))


def _ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_client_may_have_old_messages_leave(work: Path) -> None:
    script = f"context: 150\n{TWO_ROUNDS.strip()}"
    long: list[Any] = [{"role": "user", "content": "word " * 70}]
    answer: Any = {"role": "assistant", "content": "yes"}
    history = [*long, answer, *long, answer, *HI]
    with serve(script, agent_of(runner(work))) as server:
        for streaming in (False, True):
            body = {"messages": history, "stream": streaming}
            refused = httpx.post(server.url + CHAT, json=body, timeout=PATIENCE)
            assert refused.json()["error"]["code"] == "context_length_exceeded"
            headers = {"x-shepherd-truncation": "auto"}
            served = httpx.post(server.url + CHAT, json=body, headers=headers, timeout=PATIENCE)
            assert served.status_code == 200
            assert served.headers["x-shepherd-evicted"] in ("2", "4")


def test_hidden_rounds_leave_before_a_request_is_refused(work: Path) -> None:
    (work / "notes.txt").write_text("milk " * 100)
    answer: Any = {"role": "assistant", "content": "I look.\n\nThe milk."}
    more: Any = {"role": "user", "content": "word " * 130}
    script = f"context: 200\n{TWO_ROUNDS.strip()}\n---\ntext: Yes."
    with serve(script, agent_of(runner(work))) as server, server.client() as client:
        ask(client)
        assert ask(client, messages=[*HI, answer, more]).choices[0].message.content == "Yes."
        assert server.backend.prompts[-1].roles == "uau"


def test_a_context_that_the_tools_fill_ends_the_answer(work: Path) -> None:
    script = f"{TWO_ROUNDS.strip()}\n".replace("text: The milk.", "full: 100")
    with serve(script, agent_of(runner(work))) as server, server.client() as client:
        choice = ask(client).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("length", "I look.")
