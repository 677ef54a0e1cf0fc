"""`shepherd mcp serve` as a process, with the client of the official SDK."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

from shepherd.cli.mcpserver.work import (
    MAX_CHARACTERS,
    NO_ANSWER,
    TOO_LONG,
    Calls,
    ElicitingApprover,
    RunningCall,
    can_elicit,
)
from shepherd.messages import ToolCall
from shepherd.models import BUILTIN_TOOLS
from shepherd.tools.permissions.approval import DENIED_BY_USER, ApprovalRequest, Choice
from shepherd.tools.tool import ToolResult
from tests.cli.program import Program
from tests.forked import SHEPHERD, start_forked
from tests.mcp.pipes import streams
from tests.patience import PATIENCE

SCRIPT = """
call: write_file {"path": "asked.txt", "content": "x"}
---
text: Written.
---
call: write_file {"path": "never.txt", "content": "x"}
---
text: The third answer.
"""


@dataclass
class User:
    """Answers the client's forms with `content`, or never; keeps what the client receives."""

    content: dict[str, Any] = field(default_factory=lambda: {"decision": "once"})
    hangs: bool = False
    forms: list[str] = field(default_factory=list[str])
    progress: list[str] = field(default_factory=list[str])
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    strays: list[object] = field(default_factory=list[object])

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.forms.append(params.message)
        self.shown.set()
        if self.hangs:
            await asyncio.Event().wait()
        return types.ElicitResult(action="accept", content=self.content)

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(message or "")

    async def receive(self, message: object) -> None:
        if isinstance(message, Exception):
            self.strays.append(message)


@asynccontextmanager
async def serving(
    program: Program, user: User | None, mode: str, *options: str, roots: tuple[Path, ...] = ()
) -> AsyncGenerator[Client]:
    """A client of the program, which must end well when its stdin is closed."""

    async def list_roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(root.as_uri())) for root in roots]
        )

    with program.start_scripted(SCRIPT, "mcp", "serve", *options) as process:
        client = Client(
            streams(process),
            mode=mode,
            elicitation_callback=user.elicit if user else None,
            message_handler=user.receive if user else None,
            list_roots_callback=list_roots if roots else None,
            read_timeout_seconds=PATIENCE,
        )
        async with client:
            try:
                yield client
            finally:
                process.stdin.close() if process.stdin else None
                code = await asyncio.to_thread(process.wait, PATIENCE)
        assert code == 0, process.stderr.read() if process.stderr else ""


async def text(client: Client, name: str, /, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert isinstance(result.content[0], types.TextContent)
    assert result.is_error == result.content[0].text.startswith("Error: ")
    return result.content[0].text


async def test_a_client_of_the_older_protocol(program: Program) -> None:
    user, work = User(), program.work
    project = program.home / "project"
    project.mkdir()
    (project / "here.txt").write_text("in the root\n")
    async with serving(program, user, "legacy", roots=(program.home / "gone", project)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {*BUILTIN_TOOLS, "ask"}
        assert tools["read_file"].annotations == types.ToolAnnotations(
            read_only_hint=True, open_world_hint=False
        )
        assert await text(client, "read_file", path="here.txt") == "in the root"
        assert await text(client, "find_tools", query="x") == "Error: unknown tool: find_tools"
        assert "Field required" in await text(client, "ask", question="x")
        user.content = {"decision": "deny"}
        assert "denied by the user" in await text(client, "write_file", path="a", content="x")
        user.content = {}
        assert NO_ANSWER in await text(client, "write_file", path="a", content="x")
        user.content = {"decision": "once"}
        answer = await client.call_tool("ask", {"prompt": "Go on."}, progress_callback=user.note)
        assert answer.content == [types.TextContent(text="Written.")]
        assert any('write_file {"path": "asked.txt"' in line for line in user.progress)
        assert (project / "asked.txt").read_text() == "x"
        assert not (project / "a").exists()
        await check_cancelled(client, user, project)
    assert user.forms[0].startswith("Allow write_file?")
    assert user.strays == []
    assert [path.name for path in work.iterdir()] == ["todo.txt"]


async def check_cancelled(client: Client, user: User, directory: Path) -> None:
    """A call that is cancelled during its question does nothing, and the server goes on."""
    user.hangs, user.shown = True, asyncio.Event()
    call = asyncio.ensure_future(text(client, "ask", prompt="Once more."))
    await asyncio.wait_for(user.shown.wait(), PATIENCE)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    user.hangs = False
    assert await text(client, "ask", prompt="And now?") == "The third answer."
    assert not (directory / "never.txt").exists()


async def test_a_client_of_the_newer_protocol(program: Program) -> None:
    user = User()
    async with serving(program, user, "auto", "--tools", "read_file, write_file,ask") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["read_file", "write_file", "ask"]
        assert await text(client, "read_file", path="todo.txt") == "buy milk"
        assert (await text(client, "glob", pattern="*")).startswith("Error: unknown tool: glob")
        unusable = await text(client, "ask", prompt="Look.", images=["todo.txt"])
        assert unusable.startswith("Error: todo.txt: ")
        assert await text(client, "ask", prompt="Go on.", images=None) == "Written."
        assert len(user.forms) == 1
        assert (program.work / "asked.txt").read_text() == "x"
        await check_state(client)
        user.content = {"decision": "session"}
        for name in ("one", "two"):
            assert "Wrote" in await text(client, "write_file", path=name, content="x")
        assert len(user.forms) == 2
    assert user.strays == []


async def check_state(client: Client) -> None:
    """The state of a waiting call belongs to that call alone, and only once."""
    arguments = {"path": "b", "content": "x"}
    session = client.session
    asked = await session.call_tool("write_file", arguments, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    yes: types.InputResponses = {
        "approval": types.ElicitResult(action="accept", content={"decision": "once"})
    }
    state = asked.request_state
    for other, forged in ((arguments, "x"), ({**arguments, "content": "y"}, state)):
        with pytest.raises(MCPError):
            await session.call_tool("write_file", other, input_responses=yes, request_state=forged)
    done = await session.call_tool(
        "write_file", arguments, input_responses=yes, request_state=state
    )
    assert isinstance(done, types.CallToolResult)
    assert not done.is_error
    with pytest.raises(MCPError):
        await session.call_tool("write_file", arguments, input_responses=yes, request_state=state)


async def test_without_forms_calls_that_need_approval_are_denied(program: Program) -> None:
    with program.start_scripted(SCRIPT, "mcp", "serve") as process:
        async with Client(streams(process), mode="legacy", read_timeout_seconds=PATIENCE) as client:
            denied = await text(client, "write_file", path="a", content="x")
            process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.wait, PATIENCE)
    assert "can't ask its user" in denied
    assert code == 128 + signal.SIGTERM
    assert not (program.work / "a").exists()


def test_requests_before_the_end_of_stdin_are_answered(program: Program) -> None:
    version: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello = {**version, "clientInfo": {"name": "pipe", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "get_date"}},
        {"id": 3, "method": "tools/unknown"},
    ]
    lines = ["not JSON", *(json.dumps({"jsonrpc": "2.0", **message}) for message in messages)]
    ended = program.run("mcp", "serve", stdin="\n".join([*lines, ""]))
    answers = {one["id"]: one for one in map(json.loads, ended.stdout.splitlines())}
    assert (ended.returncode, ended.stderr) == (0, "")
    assert answers.keys() == {1, 2, 3}
    assert answers[2]["result"]["isError"] is False
    assert "error" in answers[3]


@pytest.mark.parametrize("meta", [{}, {types.CLIENT_CAPABILITIES_META_KEY: {}}])
def test_discovery_needs_a_version(program: Program, meta: dict[str, Any]) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    ended = program.run("mcp", "serve", stdin=json.dumps(request) + "\n")
    assert json.loads(ended.stdout)["error"]["code"] == types.INVALID_PARAMS


def test_an_empty_stdin_ends_the_server(program: Program) -> None:
    with open(os.devnull) as nothing:  # noqa: PTH123 - a device
        process = start_forked([SHEPHERD, "mcp", "serve"], program.env, stdin=nothing)
        assert process.wait(PATIENCE) == 0


@asynccontextmanager
async def over_http(program: Program, *options: str) -> AsyncGenerator[tuple[str, str]]:
    """The address of a server, which a signal ends, and the header for it."""
    with program.start_scripted(SCRIPT, "mcp", "serve", "--http", "0", *options) as process:
        assert process.stderr
        lines: list[str] = []
        while not (match := re.search(r"at (http:\S+/mcp) .*: (Bearer \S+)", "".join(lines[-1:]))):
            lines.append(await asyncio.to_thread(process.stderr.readline))
            assert lines[-1], lines
        try:
            yield match[1], match[2]
        finally:
            process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.wait, PATIENCE)
            assert (code, process.stderr.read()) == (128 + signal.SIGTERM, "")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_over_http(program: Program, mode: str) -> None:
    user = User()
    async with over_http(program) as (url, token):
        options: Any = {"elicitation_callback": user.elicit, "read_timeout_seconds": PATIENCE}
        http = httpx2.AsyncClient(headers={"Authorization": token}, timeout=PATIENCE)
        clients = [streamable_http_client(url, http_client=http) for _ in range(2)]
        async with (
            http,
            Client(clients[0], mode=mode, **options) as client,
            Client(clients[1], mode=mode) as other,
        ):
            assert await text(client, "read_file", path="todo.txt") == "buy milk"
            assert "can't ask its user" in await text(other, "write_file", path="a", content="x")
            assert await text(client, "ask", prompt="Go on.") == "Written."
    assert len(user.forms) == 1
    assert (program.work / "asked.txt").read_text() == "x"


async def test_what_else_comes_over_http_is_refused(program: Program) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    refusals = {
        401: {"Authorization": "Bearer guessed"},
        403: {"Origin": "http://evil.example"},
        421: {"Host": "evil.example"},
        404: {"Mcp-Session-Id": "0" * 32},
        400: {"MCP-Protocol-Version": "1999-01-01"},
    }
    async with over_http(program) as (url, token), httpx.AsyncClient(headers=accept) as http:
        assert (await http.post(url, json=call)).status_code == 401
        for status, headers in refusals.items():
            sent = {"Authorization": token, **headers}
            assert (await http.post(url, json=call, headers=sent)).status_code == status


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--tools", "ask,raed_file"], "no tool 'raed_file'"), (["--tools", ", "], "is empty")],
)
def test_wrong_names_are_refused(program: Program, options: list[str], problem: str) -> None:
    ended = program.run("mcp", "serve", *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert problem in ended.stderr


@pytest.mark.parametrize(
    ("answer", "choice", "reason"),
    [
        (types.ElicitResult(action="accept", content={"decision": "once"}), Choice.ONCE, None),
        (types.ElicitResult(action="accept", content={"decision": "session"}), Choice.DENY, None),
        (types.ElicitResult(action="accept", content={"decision": "always"}), Choice.DENY, None),
        (types.ElicitResult(action="accept", content={"decision": True}), Choice.DENY, NO_ANSWER),
        (types.ElicitResult(action="accept"), Choice.DENY, NO_ANSWER),
        (types.ElicitResult(action="cancel", content={"decision": "once"}), Choice.DENY, NO_ANSWER),
        (types.ElicitResult(action="decline"), Choice.DENY, DENIED_BY_USER),
        (None, Choice.DENY, None),
    ],
)
async def test_only_a_clear_yes_allows(
    answer: types.ElicitResult | None, choice: Choice, reason: str | None
) -> None:
    async def show(_form: types.ElicitRequestFormParams) -> types.ElicitResult | None:
        return answer

    approval = await ElicitingApprover(show).ask(ApprovalRequest(ToolCall("1", "work", {}), ()))
    assert approval.choice is choice
    assert reason in (None, approval.reason)


async def test_a_question_that_is_too_long_is_not_shown() -> None:
    async def show(_form: types.ElicitRequestFormParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once"})

    call = ToolCall("1", "work", {"text": "x" * MAX_CHARACTERS})
    approval = await ElicitingApprover(show).ask(ApprovalRequest(call, ()))
    assert (approval.choice, approval.reason) == (Choice.DENY, TOO_LONG)


async def test_a_call_whose_question_nobody_answers_ends_after_its_time() -> None:
    ended = asyncio.Event()

    async def ask(call: RunningCall) -> ToolResult:
        try:
            await call.ask(types.ElicitRequestFormParams(message="Yes?", requested_schema={}))
        finally:
            ended.set()
        return ToolResult("The call went on.")

    forms = types.ClientCapabilities(elicitation=types.ElicitationCapability())
    session = SimpleNamespace(client_capabilities=forms, can_send_request=False)
    context: Any = SimpleNamespace(session=session, request=None)
    calls = Calls(answer_seconds=0.01)
    asked = await calls.run(context, types.CallToolRequestParams(name="ask"), ask)
    assert isinstance(asked, types.InputRequiredResult)
    await asyncio.wait_for(ended.wait(), PATIENCE)
    late = types.CallToolRequestParams(name="ask", request_state=asked.request_state)
    with pytest.raises(MCPError, match="does not wait"):
        await calls.run(context, late, ask)


def test_which_clients_show_forms() -> None:
    def elicits(elicitation: types.ElicitationCapability | None) -> bool:
        return can_elicit(types.ClientCapabilities(elicitation=elicitation))

    url, form = types.UrlElicitationCapability(), types.FormElicitationCapability()
    assert elicits(types.ElicitationCapability())
    assert elicits(types.ElicitationCapability(form=form, url=url))
    assert not elicits(types.ElicitationCapability(url=url))
    assert not elicits(None)
    assert not can_elicit(None)
