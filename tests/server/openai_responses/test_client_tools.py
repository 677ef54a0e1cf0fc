"""Tools that OpenAI defines and clients run, and what other servers' tools left in a history."""

import json
from typing import Any

import httpx
import pytest

from shepherd.messages import Message, Role, ToolCall
from tests.patience import PATIENCE
from tests.server.harness import HI, Scripted, scripted
from tests.server.openai_responses.harness import created, rebuilt, streamed
from tests.server.openai_responses.test_to_session import conversation, session

COMMANDS = {"commands": ["ls", "pwd"]}
PATCH = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}
EXEC = {"command": ["ls", "-l"], "working_directory": "/tmp"}
CALLS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "shell": (COMMANDS, "action", {"timeout_ms": None, "max_output_length": None}),
    "local_shell": (EXEC, "action", {"type": "exec", "env": {}}),
    "apply_patch": (PATCH, "operation", {}),
}
OUTCOME = {"stdout": "a\n", "stderr": "no b", "outcome": {"type": "exit", "exit_code": 1}}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_an_item_of_its_own_type(kind: str, *, stream: bool) -> None:
    arguments, field, defaults = CALLS[kind]
    tools = [{"type": kind}]
    with scripted(f"call: {kind} {json.dumps(arguments)}") as server:
        if stream:
            events = streamed(server, tools=tools)
            response, items = events[-1]["response"], rebuilt(events)
            assert [item["item"] for item in items] == response["output"]
        else:
            response = created(server, tools=tools)
    assert response["tools"] == tools
    (item,) = response["output"]
    assert item["type"] == f"{kind}_call"
    assert item[field] == arguments | defaults
    found = session({"role": "user", "content": "hi"}, item, tools=tools)
    assert found.messages[-1].tool_calls == (ToolCall(item["call_id"], kind, arguments),)


@pytest.mark.parametrize(
    ("kind", "result", "text"),
    [
        ("shell", {"output": [OUTCOME, {"outcome": {"type": "timeout"}}]}, "a\n\nno b"),
        ("local_shell", {"output": "a.txt"}, "a.txt"),
        ("apply_patch", {"status": "failed", "output": "no such file"}, "no such file"),
        ("apply_patch", {"status": "completed"}, "completed"),
    ],
)
def test_a_result_reaches_the_model(kind: str, result: Any, text: str) -> None:
    call = {"type": f"{kind}_call", "call_id": "c1", CALLS[kind][1]: CALLS[kind][0]}
    output = {"type": f"{kind}_call_output", "call_id": "c1", **result}
    message = session(call, output).messages[-1]
    assert (message.role, message.tool_call_id, message.name) == (Role.TOOL, "c1", kind)
    assert message.content.startswith(text)
    if kind == "shell":
        assert message.content.endswith("Exit code 1.\nIt ran out of time.")


def test_a_result_may_name_its_call_by_its_own_id() -> None:
    call = {"type": "local_shell_call", "call_id": "c1", "action": EXEC}
    output = {"type": "local_shell_call_output", "id": "c1", "output": "x"}
    assert session(call, output).messages[-1].tool_call_id == "c1"


def test_what_other_servers_tools_did_does_not_end_a_conversation() -> None:
    search: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "action": {}}
    found = session(
        {"role": "user", "content": "hi"},
        search,
        {"role": "assistant", "content": "Found."},
        {"type": "mcp_list_tools", "id": "m_1", "server_label": "x", "tools": []},
        {"type": "computer_call_output", "call_id": "c9", "output": {"type": "screenshot"}},
    )
    assert found.messages == [Message.user("hi"), Message.assistant("Found.")]


def test_stored_items_keep_what_the_client_sent() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": 1}}
    with scripted("text: ok") as server, server.client() as client:
        first = created(server, input=[{"role": "user", "content": "hi"}, search])
        listed = client.responses.input_items.list(first["id"], order="asc")
        assert listed.data[1].id == "ws_1"
        second = created(server, input="and?", previous_response_id=first["id"])
        assert second["status"] == "completed"


REQUESTS: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "/v1/responses": ({"input": "hi"}, [{"type": "web_search"}], "web_search"),
    "/v1/chat/completions": ({"messages": HI}, [{"type": "web_search"}], "web_search"),
    "/v1/messages": (
        {"messages": HI, "max_tokens": 9},
        [{"type": "web_search_20250305", "name": "web_search"}],
        "web_search_20250305",
    ),
    "/v1beta/models/m:generateContent": (
        {"contents": [{"parts": [{"text": "hi"}]}]},
        [{"googleSearch": {}}],
        "googleSearch",
    ),
}


@pytest.fixture(scope="module")
def server() -> Any:
    with scripted("text: ok") as running:
        yield running


@pytest.mark.parametrize("path", REQUESTS)
def test_each_answer_tells_which_tools_were_left_out(server: Scripted, path: str) -> None:
    body, tools, name = REQUESTS[path]
    answer = httpx.post(server.url + path, json=body | {"tools": tools}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-shepherd-tools-left-out"] == name
    assert answer.json().get("tools", []) == []
    without = httpx.post(server.url + path, json=body, timeout=PATIENCE)
    assert "x-shepherd-tools-left-out" not in without.headers


def test_a_type_that_is_no_word_is_not_in_the_header(server: Scripted) -> None:
    tools = [{"type": "a\r\nx-evil: 1"}, {"type": "mcp"}]
    body = {"messages": HI, "tools": tools}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE)
    assert answer.headers["x-shepherd-tools-left-out"] == "mcp"
    assert "x-evil" not in answer.headers


def test_a_shell_of_openais_is_not_offered() -> None:
    found = conversation(tools=[{"type": "shell", "environment": {"type": "local"}}])
    assert [spec.name for spec in found.session.tools] == ["shell"]
