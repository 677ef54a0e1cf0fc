"""The search for tools, and the calls of tools that the prompt does not list."""

from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode
from shepherd.events import CallbackEvent
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.deferred import (
    FIND_TOOLS,
    USE_TOOL,
    FindTools,
    SearchResults,
    call_signature,
    listed_tools,
    open_call,
    search_tools,
)
from shepherd.tools.files.edit import WriteFile
from shepherd.tools.files.read import ReadFile
from shepherd.tools.function import tool
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.registry import ToolRegistry
from shepherd.turn import run_turn
from tests.tools.deferred.many import RemoteTool, remote_tools
from tests.tools.workshop import Workshop, open_workshop
from tests.turn.test_run_turn import Recorder, assert_consistent

ISSUE = "github__create_issue"
ARGUMENTS = {"owner": "me", "title": "It is broken"}


@pytest.fixture(scope="module")
def specs() -> list[ToolSpec]:
    return [remote.spec() for remote in remote_tools()]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create a GitHub issue", ISSUE),
        (ISSUE, ISSUE),
        ("opening and creating issues", ISSUE),
        ("creat issu", ISSUE),
        ("delete kubernetes pods", "kubernetes__delete_pod"),
        ("playlists search", "spotify__search_playlist"),
        ("PullRequest listing", "github__list_pull_request"),
        ("wether forcast update", "weather__update_forecast"),
    ],
)
def test_a_search_finds_the_tool(specs: list[ToolSpec], query: str, best: str) -> None:
    assert search_tools(specs, query, 5)[0].name == best


def test_each_tool_is_found_by_its_own_words(specs: list[ToolSpec]) -> None:
    missed = [
        spec.name
        for spec in specs[::7]
        if search_tools(specs, spec.description.partition(" for ")[0], 1)[0].name != spec.name
    ]
    assert missed == []


@pytest.mark.parametrize("query", ["", "?!", "the of", "zzz qqq"])
def test_a_query_without_a_known_word_finds_nothing(specs: list[ToolSpec], query: str) -> None:
    assert search_tools(specs, query, 5) == []
    assert search_tools([], query, 5) == []


def test_a_signature_is_short_and_complete() -> None:
    parameters: dict[str, Any] = {
        "properties": {
            "owner": {"type": "string"},
            "state": {"enum": ["open", "closed"]},
            "labels": {"type": "array", "items": {"type": ["string", "null"]}},
            "place": {"type": "object", "properties": {"line": {"type": "integer"}}},
            "odd": True,
            "other": {"anyOf": [{"const": 1}, {"$ref": "#/x"}]},
        },
        "required": ["owner", "place"],
    }
    assert call_signature(ToolSpec("call", "", parameters)) == (
        'call(owner: string, state?: "open" | "closed", labels?: (string | null)[], '
        "place: {line?: integer}, odd?: any, other?: 1 | any)"
    )


@pytest.mark.parametrize("schema", [{}, {"properties": 1}, {"properties": {"a": {"enum": 2}}}])
def test_a_signature_of_any_schema(schema: dict[str, Any]) -> None:
    assert call_signature(ToolSpec("call", "", schema)).startswith("call(")


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ISSUE, "arguments": ARGUMENTS},
        {"name": f" {ISSUE} ", "arguments": '{"owner": "me", "title": "It is broken"}'},
        {"name": ISSUE, **ARGUMENTS},
    ],
)
def test_a_wrapped_call_is_opened(arguments: dict[str, Any]) -> None:
    call = ToolCall("1", USE_TOOL, arguments)
    assert open_call(call) == ToolCall("1", ISSUE, ARGUMENTS)
    assert open_call(call, {USE_TOOL}) == call
    assert open_call(call, {ISSUE}) == call


MALFORMED: list[dict[str, Any]] = [
    {},
    {"name": 1, "arguments": {}},
    {"arguments": {"name": "write_file"}},
    {"name": "write_file", "arguments": [1]},
    {"name": "write_file", "arguments": "{"},
    {"name": "write_file", "arguments": "[" * 100_000},
    {"name": "write_file", "arguments": {}, "path": "a", "content": "b"},
    {"name": USE_TOOL, "arguments": {"name": "write_file", "arguments": {"path": "a"}}},
]


@pytest.mark.parametrize("arguments", MALFORMED)
async def test_a_malformed_wrapper_runs_nothing(tmp_path: Path, arguments: dict[str, Any]) -> None:
    workshop = open_workshop(tmp_path)
    opened = open_call(ToolCall("1", USE_TOOL, arguments))
    result = await workshop.runner.run(opened)
    assert not result.ok
    assert "use_tool needs two arguments" in result.content
    assert list(workshop.root.iterdir()) == []


async def test_nothing_runs_a_wrapper_that_was_not_opened(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path)
    inner = {"path": "a.txt", "content": "x"}
    result = await workshop.result(USE_TOOL, name="write_file", arguments=inner)
    assert not result.ok
    assert list(workshop.root.iterdir()) == []


def office(
    tmp_path: Path, answers: list[Choice], rules: list[str], mode: ApproveMode = ApproveMode.ASK
) -> tuple[Workshop, list[RemoteTool]]:
    remotes = remote_tools()
    registry = ToolRegistry([ReadFile(), WriteFile(), *remotes, FindTools()])
    return open_workshop(
        tmp_path, mode=mode, answers=answers, rules=rules, registry=registry
    ), remotes


async def answer(workshop: Workshop, script: str) -> tuple[Session, Recorder]:
    registry = workshop.runner.registry
    session = Session(tools=listed_tools(registry, 500), deferred=SearchResults(registry))
    recorder = Recorder()
    backend = ScriptedBackend(parse_script(script))
    await run_turn(session, "Report it.", backend, workshop.runner, recorder)
    assert_consistent(session)
    return session, recorder


SCRIPT = """
call: find_tools {"query": "create a github issue"}
---
call: use_tool {"name": "github__create_issue", "arguments": {"owner": "me", "title": "Broken"}}
---
text: Done.
"""


async def test_a_found_tool_is_called_under_its_own_name(tmp_path: Path) -> None:
    workshop, remotes = office(tmp_path, [Choice.ONCE], [])
    session, recorder = await answer(workshop, SCRIPT)
    assert [spec.name for spec in session.tools] == [
        "read_file",
        "write_file",
        FIND_TOOLS,
        USE_TOOL,
    ]
    found = session.messages[2].content
    assert f"{ISSUE}(owner: string, title: string, labels?: string[], limit?: integer)" in found
    assert "owner: The owner of the place to work in." in found
    assert [request.call.name for request in workshop.approver.requests] == [ISSUE]
    assert workshop.approver.requests[0].call.arguments == {"owner": "me", "title": "Broken"}
    assert [remote.name for remote in remotes if remote.calls] == [ISSUE]
    kinds = (CallbackEvent.TOOL_CALL, CallbackEvent.TOOL_RESULT)
    shown = [(name, content) for kind, content, name, _ in recorder.events if kind in kinds]
    assert [name for name, _ in shown] == [FIND_TOOLS, FIND_TOOLS, ISSUE, ISSUE]
    assert shown[2][1] == '{"owner": "me", "title": "Broken"}'
    assert session.messages[3].tool_calls[0].name == session.messages[4].name == USE_TOOL


@pytest.mark.parametrize(
    ("rule", "mode"),
    [
        (f"deny {ISSUE} *", ApproveMode.ALL),
        ("deny github__* *", ApproveMode.ALL),
        ("deny tool github__create_issue", ApproveMode.ALL),
        (f"allow {USE_TOOL} *", ApproveMode.NONE),
    ],
)
async def test_no_rule_is_avoided_by_the_wrapper(
    tmp_path: Path, rule: str, mode: ApproveMode
) -> None:
    workshop, remotes = office(tmp_path, [], [rule], mode)
    session, _ = await answer(workshop, SCRIPT)
    assert [remote.name for remote in remotes if remote.calls] == []
    assert session.messages[4].content.startswith("Error: denied by rule")


async def test_a_builtin_tool_inside_the_wrapper_follows_its_rules(tmp_path: Path) -> None:
    workshop, _ = office(tmp_path, [], ["deny write **/.env"], ApproveMode.ALL)
    script = 'call: use_tool {"name": "write_file", "arguments": {"path": ".env", "content": "x"}}'
    session, _ = await answer(workshop, f"{script}\n---\ntext: no\n")
    assert "denied by rule" in session.messages[2].content
    assert not (workshop.root / ".env").exists()


async def test_mistakes_name_the_tool_and_its_arguments(tmp_path: Path) -> None:
    workshop, _ = office(tmp_path, [], [], ApproveMode.ALL)
    wrong_name = await workshop.call("github_create_issues", **ARGUMENTS)
    assert wrong_name.startswith("Error: unknown tool: github_create_issues; similar: github__cre")
    long_name = await workshop.call("a b c d " * 100_000)
    assert long_name.startswith("Error: unknown tool: a b c d")
    wrong_arguments = await workshop.call(ISSUE, owner="me", text="x")
    assert f"{ISSUE}(owner: string, title: string" in wrong_arguments
    nothing = await workshop.call(FIND_TOOLS, query="zzz")
    assert nothing.startswith("No tool matches. Try other words. There are 200 tools, of calendar,")


def test_a_search_makes_its_tools_callable() -> None:
    registry = ToolRegistry([ReadFile(), *remote_tools(), FindTools()])
    session = Session(tools=listed_tools(registry, 500), deferred=SearchResults(registry))
    before = [spec.name for spec in session.callable_tools]
    assert before == [spec.name for spec in session.tools]
    call = ToolCall("1", FIND_TOOLS, {"query": "issue"})
    session.add(Message.assistant("", tool_calls=(call,)))
    session.add(Message.tool(call, f"1 of 200 tools:\n{ISSUE}(owner: string)\nread_file(x)"))
    assert [spec.name for spec in session.callable_tools] == [*before, ISSUE]
    assert [spec.name for spec in session.tools] == before


def test_few_tools_are_listed_in_full() -> None:
    few = [ReadFile(), *remote_tools()[:2], FindTools()]
    listed = [spec.name for spec in listed_tools(few, 500)]
    assert listed == ["read_file", ISSUE, "github__create_pull_request"]
    searched = [spec.name for spec in listed_tools(few, 10)]
    assert searched == ["read_file", FIND_TOOLS, USE_TOOL]


@pytest.mark.parametrize("name", [FIND_TOOLS, USE_TOOL])
def test_no_added_tool_takes_a_reserved_name(name: str) -> None:
    def work() -> str:
        """Work."""
        return ""

    with pytest.raises(TypeError, match="Shepherd has a tool of that name"):
        tool(name=name)(work)
