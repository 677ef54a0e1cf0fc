"""`--cliserver` and `--connect` as programs."""

import json
import os

import httpx
import pytest

from tests.cli.cliserver import cliserver
from tests.cli.program import Program
from tests.patience import PATIENCE

SCRIPT = """\
call: write_file {"path": "new.txt", "content": "hello"}
---
text: I wrote it.
---
text: Nothing else.
"""


def test_calls_of_tools_are_noted(program: Program) -> None:
    (program.work / "a.txt").write_text("a")
    script = 'call: read_file {"path": "a.txt"}\n---\ntext: done'
    with cliserver(program, script) as url:
        answer = httpx.post(f"{url}/request", json={"prompt": "read"}, timeout=PATIENCE).json()
    state = program.home / ".local" / "state" / "shepherd"
    (line,) = (state / "audit.jsonl").read_text().splitlines()
    noted = json.loads(line)
    assert (noted["tool"], noted["outcome"], noted["path"]) == ("read_file", "ok", "/request")
    assert (noted["request"], noted["key"], noted["model"]) == (answer["request"], "", "script")


def test_a_question_goes_to_the_server_and_its_session_survives(program: Program) -> None:
    with cliserver(program, SCRIPT, "--approve", "edits") as url:
        asked = program.run("--connect", url, "-e", "write it")
        assert (asked.returncode, asked.stdout) == (0, "I wrote it.\n")
        assert "→ write_file" in asked.stderr
        assert (program.work / "new.txt").read_text() == "hello"
        first = httpx.get(f"{url}/session", timeout=PATIENCE).json()
    with cliserver(program, SCRIPT) as url:
        again = httpx.get(f"{url}/session", timeout=PATIENCE).json()
        assert (again["id"], again["messages"]) == (first["id"], first["messages"])
    [saved] = program.sessions
    saved.unlink()
    with cliserver(program, SCRIPT) as url:
        assert httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"] == []


def test_what_needs_a_yes_is_denied_without_a_terminal(program: Program) -> None:
    with cliserver(program, SCRIPT) as url:
        asked = program.run("--connect", url, "-e", "write it")
        assert asked.stdout == "I wrote it.\n"
        assert "no terminal to ask" in asked.stderr
        assert not (program.work / "new.txt").exists()


def test_keys_are_asked_for_and_given(program: Program) -> None:
    key = program.run("apikey", "add", "laptop").stdout.split()[-1]
    with cliserver(program, SCRIPT, "--auth-mode", "json", "--approve", "none") as url:
        refused = program.run("--connect", url, "-e", "hi")
        assert refused.returncode == 1
        assert "--api-key" in refused.stderr
        asked = program.run("--connect", url, "--api-key", key, "-e", "hi")
        assert (asked.returncode, asked.stdout) == (3, "I wrote it.\n")


@pytest.mark.parametrize(("options", "warns"), [((), 1), (("--auth-mode", "json"), 0)])
def test_keys_that_a_server_does_not_ask_for_are_told(
    program: Program, options: tuple[str, ...], warns: int
) -> None:
    elsewhere = ("--host", "192.0.2.1")  # no machine has this address, so the server ends

    def warnings() -> int:
        run = program.run("--server", "--port", "0", *elsewhere, *options)
        assert run.returncode
        return run.stderr.count("The API keys are not checked")

    assert warnings() == 0
    program.run("apikey", "add", "laptop")
    assert warnings() == warns
    (program.config / "keys.json").write_text("damaged")
    assert warnings() == warns


def test_commands_work_for_clients(program: Program) -> None:
    add = ("apikey", "add", "laptop", "--scope", "chat", "--scope", "tools", "--scope")
    key = program.run(*add, "approve").stdout.split()[-1]
    headers, new = {"Authorization": f"Bearer {key}"}, program.work / "new.txt"
    with (
        cliserver(program, SCRIPT, "--auth-mode", "json", "--approve", "edits") as url,
        httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client,
    ):

        def command(text: str) -> httpx.Response:
            return client.post("/command", json={"command": text})

        client.post("/request", json={"prompt": "write it"}).raise_for_status()
        assert new.exists()
        assert "+hello" in command("/diff").json()["content"]
        assert command("/undo").json()["command"] == "undo"
        assert not new.exists()
        assert command("/rewind 1").status_code == 200
        assert client.get("/session").json()["messages"] == []
        assert "approve: none" in command("/approve none").json()["content"]
        assert command("/dance").status_code == 400


def test_a_command_that_changes_files_or_rules_needs_the_scope_of_approvals(
    program: Program,
) -> None:
    key = program.run("apikey", "add", "laptop").stdout.split()[-1]
    headers, new = {"Authorization": f"Bearer {key}"}, program.work / "new.txt"
    with (
        cliserver(program, SCRIPT, "--auth-mode", "json", "--approve", "edits") as url,
        httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client,
    ):
        client.post("/request", json={"prompt": "write it"}).raise_for_status()
        powerful = ["/undo", "/undo 1 force", "/redo", "/approve all", "/rewind 1 files"]
        powerful += [
            "/mcp enable one",
            "/mcp reconnect one",
            "/rewind files 1 force",
            "/tree 1 files",
            "!true",
            "!!true",
        ]
        for text in powerful:
            refused = client.post("/command", json={"command": text})
            assert refused.status_code == 403, text
            assert refused.json()["error"]["code"] == "insufficient_scope"
        assert new.read_text() == "hello"
        for text in ("/approve", "/diff", "/tree", "/rewind 1"):
            assert client.post("/command", json={"command": text}).status_code == 200, text
        assert client.post("/clear").status_code == 200
    lines = (program.home / ".local/state/shepherd/audit.jsonl").read_text().splitlines()
    noted = [entry for line in lines if (entry := json.loads(line))["tool"][0] in "/!"]
    assert [entry["outcome"] for entry in noted] == ["denied"] * len(powerful) + ["ok"] * 5
    first, last = noted[0], noted[-1]
    assert (first["tool"], first["path"], first["key"]) == ("/undo", "/command", "laptop")
    assert first["decisions"][0]["by"] == "scopes"
    assert noted[1]["arguments"] == {"argument": "1 force"}
    assert (last["tool"], last["path"]) == ("/clear", "/clear")


def test_clients_run_their_own_commands_and_read_of_background_ones(program: Program) -> None:
    script = """call: execute_command {"command": "cat go", "background": true, "live": true}
---
text: started
---
text: I see.
"""
    go = program.work / "go"
    os.mkfifo(go)
    with cliserver(program, script, "--approve", "all") as url:
        own = program.run("--connect", url, "-e", "!echo no command here")
        assert own.stdout == "started\n"  # text of -e is a message
        jobs = program.run("--connect", url, "-e", "/jobs")
        assert jobs.stdout.startswith("command 1 (cat go): running")
        go.write_text("")
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            first = client.post("/command", json={"command": "!echo for-$((40 + 2)); exit 3"})
            assert first.json() == {"command": "!", "content": "for-42\n(ended with exit code 3)"}
            hidden = client.post("/command", json={"command": "!!echo mine"}).json()["content"]
            assert hidden == "mine"
            client.post("/request", json={"prompt": "what was that?"}).raise_for_status()
            messages = client.get("/session").json()["messages"]
    assert messages[-4]["content"] == "for-42\n[exit code 3]"
    assert "mine" not in json.dumps(messages)
    state = program.home / ".local" / "state" / "shepherd"
    notes = [json.loads(line) for line in (state / "audit.jsonl").read_text().splitlines()]
    assert [note["tool"] for note in notes] == ["execute_command", "/jobs", "!", "!!"]


def test_where_no_tools_run_no_own_command_runs(program: Program) -> None:
    with cliserver(program, SCRIPT, "--notools") as url:
        answer = httpx.post(f"{url}/command", json={"command": "!touch x"}, timeout=PATIENCE)
    assert (answer.status_code, "switched off" in answer.text) == (400, True)
    assert not (program.work / "x").exists()


def test_nobody_there_is_one_sentence(program: Program) -> None:
    ended = program.run("--connect", "127.0.0.1:9", "-e", "hi")
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("shepherd: No shared session can be reached at http://127.0.0.1:9")


def test_options_that_exclude_each_other(program: Program) -> None:
    for options in (
        ["--cliserver", "--server"],
        ["--cliserver", "-e", "x"],
        ["--connect", "h", "--cliserver"],
        ["--connect", "h", "--resume", "x"],
        ["--connect", " "],
    ):
        assert program.run(*options).returncode == 2
