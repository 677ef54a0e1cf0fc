"""Servers as processes: secrets, the sandbox, and servers that misbehave."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from shepherd.config.secrets import Secrets
from shepherd.config.section import SandboxMode
from shepherd.mcp.links import MAX_BURST, Quota
from shepherd.mcp.process import MAX_MESSAGE_BYTES, ServerLog, ServerProcess
from shepherd.mcp.questions import SamplingRequest
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Origin, Server, ServerState, ServerStore, make_server
from shepherd.tools.permissions.approval import Approval, Choice
from tests.approvers import ScriptedApprover
from tests.forked import SHEPHERD, start_forked
from tests.mcp.harness import ROOT, is_alive, open_office, paths_below, script, until
from tests.patience import PATIENCE

SPEAKS = """
import json, os, sys, time
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def answer(request):
    method, id = request["method"], request.get("id")
    if method == "initialize":
        say(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {}}
        say(id=id, result={"tools": [{"name": "do", "inputSchema": schema}]})
    elif method == "tools/call":
        do(id)
    elif id is not None:
        say(id=id, error={"code": -32601, "message": "unknown"})
def text(id, value): say(id=id, result={"content": [{"type": "text", "text": value}]})
def do(id): text(id, "done")
"""
"""The protocol in a few lines; `do` is the tool."""
SERVES = "for line in sys.stdin: answer(json.loads(line))\n"


def program(change: str = "") -> str:
    """A server whose code is changed before it serves."""
    return SPEAKS + change + SERVES


async def test_a_start_that_is_cancelled_at_any_step_leaves_no_process(tmp_path: Path) -> None:
    def start() -> tuple[subprocess.Popen[bytes], int]:
        theirs, ours = os.pipe()
        with os.fdopen(theirs, "rb") as stdin:
            command = ["sleep", "600"]
            group = subprocess.Popen(
                command, stdin=stdin, stdout=-1, stderr=-1, start_new_session=True
            )
        return group, ours

    async def enter(process: ServerProcess) -> None:
        async with process:
            await asyncio.Event().wait()

    async def cancel(steps: int) -> int | None:
        popen, stdin = start()
        entering = asyncio.ensure_future(enter(ServerProcess(popen, stdin, ServerLog(tmp_path))))
        for _ in range(steps):
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        return popen.poll()

    ended = await asyncio.gather(*map(cancel, range(1, 12)))
    assert set(ended) == {-signal.SIGTERM}


async def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    tell = 'def do(id): text(id, str(os.getpid()))\nprint("out of order", file=sys.stderr)\n'
    async with open_office(tmp_path, [script("one", program(tell))]) as office:
        before = int((await office.call("one__do")).content)
        os.kill(before, signal.SIGKILL)
        await until(lambda: office.entry("one").state is not ServerState.READY)
        after = int((await office.call("one__do")).content)
        assert after != before
        [notice] = office.notices
        assert "The MCP server one ended" in notice
        assert "out of order" in notice
        log = office.paths.mcp_logs / "one.log"
        assert log.stat().st_mode & 0o777 == 0o600
    await until(lambda: not is_alive(after))


async def test_a_hanging_call_ends_and_the_next_one_works(tmp_path: Path) -> None:
    hang = """
calls = []
def do(id):
    calls.append(id)
    if len(calls) > 1: text(id, "done")
"""
    async with open_office(tmp_path, [script("one", program(hang), timeout=0.5)]) as office:
        late = await office.call("one__do")
        assert not late.ok
        assert "did not answer in 0.5 s" in late.content
        async with asyncio.timeout(PATIENCE):  # a slow machine may take longer than 0.5 s, too
            while (await office.call("one__do")).content != "done":
                pass


async def test_a_server_that_never_answers_does_not_delay_the_others(tmp_path: Path) -> None:
    mute = script("mute", "import time\nwhile True: time.sleep(60)", start_timeout=0.5)
    async with open_office(tmp_path, [mute, script("one", program())]) as office:
        assert (await office.call("one__do")).content == "done"
        assert office.entry("mute").state is not ServerState.READY


async def test_floods_and_malformed_lines_end_a_connection_with_one_notice(
    tmp_path: Path,
) -> None:
    noise = 'print("Starting up!", flush=True)\n'
    flood = """
def do(id):
    while True: say(method="notifications/nothing")
"""
    long = f"def do(id): text(id, 'x' * {MAX_MESSAGE_BYTES})\n"
    servers = [
        script("noisy", program(noise)),
        script("flood", program(flood)),
        script("long", program(long)),
    ]
    async with open_office(tmp_path, servers) as office:
        assert (await office.call("noisy__do")).content == "done"
        assert "ignored: Starting up!" in office.notices[0]
        results = await asyncio.gather(office.call("flood__do"), office.call("long__do"))
        assert not any(result.ok for result in results)
        await until(lambda: len(office.notices) >= 3)
        texts = "\n".join(office.notices)
        assert "flood ended: it floods" in texts
        assert "long ended: it sent a message of more than 16 MiB" in texts


def test_a_quota_lets_bursts_pass() -> None:
    now = 0.0
    quota = Quota(lambda: now)
    assert all(quota.take() for _ in range(MAX_BURST))
    assert not quota.take()
    now = 1.0
    assert quota.take()


async def test_secrets_are_in_the_environment_only(tmp_path: Path) -> None:
    line = "open('/proc/self/cmdline').read()"
    show = f"""
def do(id):
    pipe = open("seen", "w")
    pipe.write(json.dumps([dict(os.environ), {line}]))
    pipe.close()
    text(id, os.environ.get("TOKEN", ""))
"""
    env = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-own", "OTHER": "not named"}
    paths = paths_below(tmp_path)
    secrets = ServerSecrets(Secrets(paths.credentials_file, env), env)
    secrets.save("one", "TOKEN", "the-secret", "file")
    one = script("one", program(show), secrets={"TOKEN": "file"}, env={"HEADER": "Bearer ${TOKEN}"})
    leak = script("leak", program(show), env={"KEY_OF_YOURS": "${OPENAI_API_KEY}"})
    async with open_office(tmp_path, [one, leak], env=env) as office:
        assert (await office.call("one__do")).content == "[TOKEN]"
        variables, line = json.loads((office.root / "seen").read_text())
        assert variables["TOKEN"] == "the-secret"
        assert variables["HEADER"] == "Bearer the-secret"
        assert not {"OPENAI_API_KEY", "OTHER"} & variables.keys()
        assert "the-secret" not in line
        assert "may not get Shepherd's own OPENAI_API_KEY" in office.entry("leak").problem


async def test_the_sandbox_keeps_a_server_in_its_place(tmp_path: Path) -> None:
    outside = [tmp_path / "outside", ROOT / "tests/mcp/outside"]
    write = f"""
def do(id):
    open("inside", "w").write("yes")
    for path in {[*map(str, outside)]}:
        try: open(path, "w").write("no")
        except OSError: pass
    text(id, "tried")
"""
    servers = [script("one", program(write))]
    async with open_office(tmp_path, servers, sandbox=SandboxMode.REQUIRED) as office:
        assert (await office.call("one__do")).content == "tried"
        assert (office.root / "inside").read_text() == "yes"
    assert not any(path.exists() for path in outside)


async def test_older_servers_ask_the_user_and_the_model_during_a_call(tmp_path: Path) -> None:
    asks = """
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
def ask(method, **params):
    say(id="q", method=method, params=params)
    return json.loads(sys.stdin.readline()).get("result", {})
def do(id):
    form = ask("elicitation/create", message="Go on?", requestedSchema=FORM)
    hello = {"role": "user", "content": {"type": "text", "text": "Hello"}}
    sample = ask("sampling/createMessage", messages=[hello], maxTokens=10)
    text(id, json.dumps([form, sample.get("content")]))
"""

    async def sampler(request: SamplingRequest) -> str:
        return f"{request.messages[0].content} to you"

    yes = ScriptedApprover([Approval(Choice.ONCE, values=("yes",)), Approval(Choice.ONCE)])
    servers = [script("one", program(asks))]
    async with open_office(tmp_path, servers, approver=yes, sampler=sampler) as office:
        form, sample = json.loads((await office.call("one__do")).content)
        assert form == {"action": "accept", "content": {"ok": True}}
        assert sample == {"type": "text", "text": "Hello to you"}
        assert [request.cause for request in yes.requests] == [
            "the MCP server one asks you to answer a form",
            "the MCP server one asks you to use your model",
        ]
        assert json.loads((await office.call("one__do")).content) == [{"action": "decline"}, None]


async def test_a_server_of_a_project_needs_consent_to_exactly_itself(tmp_path: Path) -> None:
    def project(code: str) -> Server:
        values = script("one", code).definition.model_dump(exclude_defaults=True)
        return make_server("one", values, Origin.PROJECT, tmp_path / ".mcp.json")

    denying = ScriptedApprover([Approval(Choice.DENY), Approval(Choice.ONCE)])
    async with open_office(tmp_path, [project(program())], approver=denying) as office:
        assert office.entry("one").state is ServerState.WAITING
        await office.hub.ask(denying)
        assert office.entry("one").state is ServerState.OFF
        [request] = denying.requests
        assert request.preview.startswith(sys.executable)
        await office.hub.ask_for(office.entry("one"), denying)
        await office.hub.settled()
        assert (await office.call("one__do")).content == "done"
    async with open_office(tmp_path, [project(program())]) as office:
        assert office.entry("one").state is ServerState.READY
    async with open_office(tmp_path, [project(program() + "#")]) as office:
        assert office.entry("one").state is ServerState.WAITING


def test_servers_end_with_a_killed_shepherd(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    one = script("one", program("def do(id): text(id, f'<{os.getpid()}>')\n"), sandbox=False)
    ServerStore(home / ".config/shepherd/mcp.toml").save(one)
    (home / "script").write_text("call: one__do {}\n---\ndelay: 600\ntext: x\n")
    model = ["--model", f"script:{home / 'script'}", "--approve", "all", "-e", "do it"]
    shepherd = start_forked(
        [SHEPHERD, *model],
        {"PATH": os.environ["PATH"], "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=work,
    )
    with shepherd:
        lines = iter(shepherd.stdout or ())
        number = next(match[1] for line in lines if (match := re.search(r"<(\d+)>", line)))
        assert is_alive(int(number))
        shepherd.kill()
    asyncio.run(until(lambda: not is_alive(int(number))))
