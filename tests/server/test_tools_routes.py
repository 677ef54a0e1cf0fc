"""The server's own tools over HTTP, under the permission rules."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode
from shepherd.tools.environment import GetTime
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("work")
    (path / "notes.txt").write_text("remember the milk\n")
    return path


class Remote(GetTime):
    """A tool with the name of one of an MCP server."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Scripted]:
    context = ToolContext(cwd=directory, spill_dir=directory / "spill")
    registry = default_registry()
    for name in ("clock__now__utc", "read__file"):
        registry.add(Remote(name))
    runner = ToolRunner(registry, PermissionPolicy(directory), DenyingApprover(), context)
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, tools=runner) as running:
        yield running


def execute(server: Scripted, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    body = {"name": name, "arguments": arguments} | more
    response = httpx.post(f"{server.url}/v1/tools/execute", json=body, timeout=PATIENCE)
    assert response.status_code == 200
    return response.json()


def test_tools_are_listed_with_their_schemas(server: Scripted) -> None:
    tools = httpx.get(f"{server.url}/v1/tools", timeout=PATIENCE).json()["tools"]
    by_name = {tool["name"]: tool for tool in tools}
    assert {"read_file", "execute_command", "get_time"} <= set(by_name)
    assert by_name["read_file"]["description"]
    assert "path" in by_name["read_file"]["parameters"]["properties"]


@pytest.mark.parametrize("number", ["1e999", "-1e400", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("as_text", [True, False])
def test_no_number_of_a_call_is_too_large(server: Scripted, number: str, *, as_text: bool) -> None:
    arguments = f'{{"command": "true", "timeout": {number}}}'
    written = json.dumps(arguments) if as_text else arguments
    body = f'{{"name": "execute_command", "arguments": {written}}}'
    headers = {"Content-Type": "application/json"}
    url = f"{server.url}/v1/tools/execute"
    response = httpx.post(url, content=body, headers=headers, timeout=PATIENCE)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (
        "large" in error["message"]
        or "not valid JSON" in error["message"]
        or number in error["message"]
    )


def test_an_allowed_call_runs(server: Scripted) -> None:
    answer = execute(server, "read_file", {"path": "notes.txt"}, tool_call_id="call_7")
    assert answer == {"tool_call_id": "call_7", "success": True, "content": "remember the milk"}


def test_in_auto_commands_run_in_the_sandbox_and_nobody_opens_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    context = ToolContext(tmp_path / "work", tmp_path / "spill", sandbox=Sandbox())
    policy = PermissionPolicy(tmp_path / "work", ApproveMode.AUTO)
    runner = ToolRunner(default_registry(), policy, DenyingApprover(), context)
    with RunningServer(ScriptedBackend(parse_script("text: hi")), tools=runner) as running:
        answer = execute(running, "execute_command", {"command": "echo x > made; cat made"})
        assert (answer["success"], answer["content"]) == (True, "x")
        command = {"command": "cat < /dev/tcp/host.test/80"}
        refused = execute(running, "execute_command", command)
    assert not refused["success"]
    assert refused["content"].endswith("approval needed and no terminal to ask)]")
    assert "the sandbox has no network" in refused["content"]


def test_arguments_may_come_as_text_and_the_id_is_made_up(server: Scripted) -> None:
    answer = execute(server, "read_file", '{"path": "notes.txt"}')
    assert answer["success"]
    assert answer["tool_call_id"].startswith("call_")
    assert execute(server, "get_date", None)["success"]


def test_what_would_ask_is_denied(server: Scripted, directory: Path) -> None:
    written = execute(server, "write_file", {"path": "new.txt", "content": "x"})
    shell = execute(server, "execute_command", {"command": "touch made"})
    for answer in (written, shell):
        assert not answer["success"]
        assert answer["content"].startswith("Error: denied: approval needed and no terminal")
    assert sorted(path.name for path in directory.iterdir()) == ["notes.txt"]


def test_failed_calls_are_answers(server: Scripted) -> None:
    unknown = execute(server, "fly", {})
    missing = execute(server, "read_file", {"path": "none.txt"})
    wrong = execute(server, "read_file", {"height": 3})
    assert unknown["content"] == "Error: unknown tool: fly"
    assert missing["content"] == "Error: no such file: none.txt"
    assert wrong["content"].startswith("Error: bad arguments for read_file")
    assert not any(answer["success"] for answer in (unknown, missing, wrong))


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": "get_time", "arguments": "{"}, {"name": 1}, {"name": None}]
)
def test_requests_that_are_none_are_400(server: Scripted, body: Any) -> None:
    response = httpx.post(f"{server.url}/v1/tools/execute", json=body, timeout=PATIENCE)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_web_page_can_t_post_without_asking(server: Scripted) -> None:
    body = '{"name": "read_file", "arguments": {"path": "notes.txt"}}'
    kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
    for kind in kinds:
        headers = {"Content-Type": kind}
        response = httpx.post(
            f"{server.url}/v1/tools/execute", content=body, headers=headers, timeout=PATIENCE
        )
        assert response.status_code == 415


def test_each_tool_is_an_operation_of_an_openapi_document(server: Scripted) -> None:
    document = httpx.get(f"{server.url}/v1/tools/openapi.json", timeout=PATIENCE).json()
    listed = httpx.get(f"{server.url}/v1/tools", timeout=PATIENCE).json()["tools"]
    assert document["openapi"].startswith("3.1")
    for tool in listed:
        operation = document["paths"].pop(f"/{tool['name']}")["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert operation["operationId"] == tool["name"]
        assert (operation["description"], schema) == (tool["description"], tool["parameters"])
    assert not document["paths"]


def test_an_operation_runs_under_the_rules(server: Scripted) -> None:
    document = httpx.get(f"{server.url}/v1/tools/openapi.json", timeout=PATIENCE).json()
    base = server.url + document["servers"][0]["url"]
    (path,) = (path for path in document["paths"] if path == "/read_file")

    def post(body: Any, path: str = path) -> httpx.Response:
        return httpx.post(base + path, json=body, timeout=PATIENCE)

    read = post({"path": "notes.txt"})
    assert (read.status_code, read.json()) == (
        200,
        {"success": True, "content": "remember the milk"},
    )
    denied = post({"path": "new.txt", "content": "x"}, "/write_file").json()
    assert not denied["success"]
    assert denied["content"].startswith("Error: denied")
    wrong: list[Any] = [None, [], "x", 3]
    assert [post(body).status_code for body in wrong] == [400] * 4
    assert post({}, "/fly").status_code == 404


def llama(server: Scripted, tool: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    body = {"tool": tool, **body}
    answer = httpx.post(f"{server.url}/tools", json=body, headers=headers, timeout=PATIENCE)
    return answer.status_code, answer.json()


def test_clients_of_llama_cpp_find_all_tools_under_its_names(server: Scripted) -> None:
    listed = httpx.get(f"{server.url}/v1/tools", timeout=PATIENCE).json()["tools"]
    found = {tool["tool"]: tool for tool in httpx.get(f"{server.url}/tools").json()}
    functions = {name: tool["definition"]["function"] for name, tool in found.items()}
    assert all(function["name"] == name for name, function in functions.items())
    described = [(tool["description"], tool["parameters"]) for tool in listed]
    assert [(f["description"], f["parameters"]) for f in functions.values()] == described
    # SERVER_TOOL, unless a tool has that name already
    assert {"clock_now__utc", "read_file", "read__file"} <= found.keys()
    assert found["clock_now__utc"]["type"] == "mcp"
    assert [found[name]["permissions"]["write"] for name in ("read_file", "write_file")] == [0, 1]


def test_tools_run_for_clients_of_llama_cpp_under_the_rules(server: Scripted) -> None:
    read = llama(server, "read_file", params={"path": "notes.txt"})
    assert read == (200, {"plain_text_response": "remember the milk"})
    assert "plain_text_response" in llama(server, "clock_now__utc")[1]
    status, denied = llama(server, "write_file", params={"path": "new.txt", "content": "x"})
    assert (status, denied["error"][:13]) == (200, "Error: denied")
    assert llama(server, "fly")[0] == llama(server, "get_time", stream=True)[0] == 404


@pytest.mark.parametrize("header", ["x-tool-cwd", "X-Tool-Runtime"])
def test_no_tool_runs_here_that_is_asked_for_elsewhere(server: Scripted, header: str) -> None:
    status, answer = llama(server, "get_time", {header: "ssh:host"})
    assert (status, "plain_text_response" in answer) == (400, False)
