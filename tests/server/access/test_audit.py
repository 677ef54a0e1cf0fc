"""The audit: a line for each tool that ran for a client, private, bounded, without secrets."""

import json
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.messages import Role, ToolCall
from shepherd.server.access.audit import (
    MAX_ARGUMENTS,
    OLD_FILES,
    AuditedTools,
    AuditError,
    AuditLog,
    CallRecord,
    short_arguments,
    without_secrets,
)
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from shepherd.tools.access import Access
from shepherd.tools.permissions.rules import Decision, Rule
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult
from tests.patience import PATIENCE
from tests.server.agent.support import READ, Recorded, RecordingBackend, agent_of, directory, runner
from tests.server.harness import CHAT, HI, RunningServer

SECRET = "hunter2-hunter2-hunter2"
CALLS = f"""
{READ}
call: write_file {{"path": "new.txt", "content": "x"}}
call: execute_command {{"command": "curl -H 'Authorization: Bearer {SECRET}' localhost"}}
call: no_such_tool {{"password": "{SECRET}"}}
---
text: Done.
"""


def server_of(tmp_path: Path, script: str, *, required: bool = False) -> tuple[Recorded, str]:
    """A server with an agent, tool routes and keys, and the secret of a key."""
    tools = runner(directory(tmp_path), [Rule("read", "**/denied.txt", Decision.DENY)])
    keys = KeyStore(tmp_path / "keys.json")
    secret = keys.add("laptop")
    audit = tmp_path / "state" / "audit.jsonl"
    served = ServerSettings(port=0, audit_file=audit, audit_required=required)
    backend = RecordingBackend(script)
    return RunningServer(backend, served, keys, tools, agent=agent_of(tools)), secret


def post(server: Recorded, path: str, key: str, body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(server.url + path, json=body, headers=headers, timeout=PATIENCE)


def note(log: AuditLog, entry: dict[str, Any]) -> None:
    with log.noted(entry, CallRecord({})):
        pass


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Delegate(Tool[Arguments]):
    """Has another model read two files."""

    name = "delegate"
    description = "Delegate."
    arguments = Arguments
    calls_models = True

    def accesses(self, arguments: Arguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        assert context.runner is not None
        nested = context.runner.on_behalf_of("helper 1")
        assert self.name not in {tool.name for tool in nested.tools}
        for path in ("notes.txt", "denied.txt"):
            await nested.run(ToolCall("1", "read_file", {"path": path}))
        return ToolResult("done")


async def test_calls_of_a_model_behind_a_tool_have_lines_too(tmp_path: Path) -> None:
    tools = runner(directory(tmp_path), [Rule("read", "**/denied.txt", Decision.DENY)])
    tools.registry.add(Delegate())
    audit = tmp_path / "audit.jsonl"
    await AuditedTools(tools, AuditLog(audit), "main").run(ToolCall("0", "delegate", {}))
    read, denied, last = lines_of(audit)
    assert [line["tool"] for line in (read, denied, last)] == ["read_file"] * 2 + ["delegate"]
    assert [line["model"] for line in (read, denied, last)] == ["helper 1"] * 2 + ["main"]
    assert [line["outcome"] for line in (read, denied, last)] == ["ok", "denied", "ok"]
    assert denied["decisions"][-1]["decision"] == "deny"


def test_each_call_has_a_line(tmp_path: Path) -> None:
    server, key = server_of(tmp_path, CALLS)
    with server:
        chat = post(server, CHAT, key, {"messages": HI})
        direct = post(server, "/v1/tools/read_file", key, {"path": "denied.txt"})
        assert chat.is_success
        assert direct.is_success
    file = tmp_path / "state" / "audit.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in file.read_text()
    read, write, command, unknown, last = lines_of(file)
    assert [line["outcome"] for line in (read, write, command, unknown, last)] == [
        "ok", "denied", "denied", "failed", "denied"
    ]  # fmt: skip
    assert [line["tool"] for line in (read, unknown)] == ["read_file", "(unknown)"]
    assert {line["key"] for line in lines_of(file)} == {"laptop"}
    assert {line["request"] for line in (read, unknown)} == {chat.headers["x-request-id"]}
    assert last["request"] == direct.headers["x-request-id"]
    assert [(line["path"], line["model"]) for line in (read, last)] == [
        (CHAT, server.backend.info.id),
        ("/v1/tools/read_file", ""),
    ]
    assert read["arguments"] == {"path": "notes.txt"}
    assert read["decisions"][0]["decision"] == "allow"
    assert [d["decision"] for d in write["decisions"]] == ["ask", "deny"]
    assert [d["by"] for d in write["decisions"]] == ["rules", "nobody"]
    assert "denied.txt" in last["decisions"][0]["cause"]
    assert all(line["seconds"] >= 0 and line["time"].endswith("+00:00") for line in lines_of(file))


@pytest.mark.parametrize("required", [False, True])
def test_a_line_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, required: bool
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    server, key = server_of(tmp_path, f"{READ}\n{READ}\n---\ntext: Done.", required=required)
    with server:
        assert post(server, CHAT, key, {"messages": HI}).is_success
        direct = post(server, "/v1/tools/get_time", key, {}).json()
    results = [m.content for m in server.backend.prompts[-1].messages if m.role is Role.TOOL]
    assert len(results) == 2
    assert all(("can't be written" in text) is required for text in results)
    assert direct["success"] is not required
    warnings = [r for r in caplog.records if "audit of tool calls" in r.getMessage()]
    assert len(warnings) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_required_line_is_there_before_the_call(tmp_path: Path) -> None:
    server, key = server_of(tmp_path, "text: hi", required=True)
    with server:
        post(server, "/v1/tools/get_time", key, {})
    begin, end = lines_of(tmp_path / "state" / "audit.jsonl")
    assert (begin["event"], end["event"]) == ("begin", "end")
    assert "outcome" not in begin
    assert {**begin, "event": "end"}.items() <= end.items()


def test_the_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, max_bytes=300)
    for number in range(100):
        note(log, {"number": number, "text": "x" * 50})
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert len(files) == OLD_FILES + 1
    assert all(file.stat().st_size <= 300 for file in files)
    assert lines_of(path)[-1]["number"] == 99
    numbers = [line["number"] for file in [*files[:0:-1], files[0]] for line in lines_of(file)]
    assert numbers == list(range(100))[-len(numbers) :]


@pytest.mark.parametrize("kind", ["directory", "none"])
def test_required_without_a_usable_file_refuses(tmp_path: Path, kind: str) -> None:
    path = None if kind == "none" else tmp_path
    with pytest.raises(AuditError):
        note(AuditLog(path, required=True), {})


def test_a_file_that_others_can_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    note(AuditLog(path), {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [
        f"curl -H 'Authorization: Bearer {SECRET}' http://x",
        f'curl -H "authorization: {SECRET}"',
        f"curl -u me:{SECRET} http://x",
        f"curl https://me:{SECRET}@host/",
        f"curl 'http://x/?api_key={SECRET}&a=b'",
        f"PGPASSWORD={SECRET} psql",
        f"mysql --password {SECRET}",
        f"mysql --password={SECRET}",
        f'{{"client_secret": "{SECRET}"}}',
        f"export OPENAI_API_KEY='{SECRET}'",
        f"Cookie: session={SECRET}",
        f"echo sk-{SECRET}",
        f"echo ghp_{'a1' * 18}{SECRET.replace('-', '')}",
        f"Bearer {SECRET}",
        f"login known-{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    known = {f"known-{SECRET}": "MY_API_KEY"}
    assert SECRET not in without_secrets(text, known)
    assert SECRET.replace("-", "") not in without_secrets(text, known)
    hidden = json.dumps(short_arguments({"command": text, "list": [text, {"a": text}]}, known))
    assert SECRET not in hidden


def test_a_name_can_make_a_value_a_secret() -> None:
    short = short_arguments({"api_token": SECRET, "x": {"password": [SECRET]}, "path": "a.txt"}, {})
    assert SECRET not in json.dumps(short)
    assert short == {"api_token": "[hidden]", "x": {"password": "[hidden]"}, "path": "a.txt"}


TEXT = st.sampled_from(
    ["", "a", "token ", "://u:", " -u", "x" * 300, "token=" * 100, "\u20ac" * 500]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(st.dictionaries(TEXT, JSON))
def test_arguments_are_short(arguments: dict[str, Any]) -> None:
    written = json.dumps(short_arguments(arguments, {}), ensure_ascii=False)
    assert len(written) <= 2 * MAX_ARGUMENTS + 10


def test_many_arguments_are_cut() -> None:
    wide: Any = "token " * 1000
    for _ in range(6):
        wide = [wide] * 100
    written = json.dumps(short_arguments({"a": wide, "n": 10**5000}, {}), ensure_ascii=False)
    assert len(written) <= 2 * MAX_ARGUMENTS + 10
