"""A conversation as JSON lines."""

import json
import os
import subprocess
from typing import Any, cast

import pytest

from shepherd.cli.batch.protocol import OUTPUT_TYPES, InputError, Interrupt, UserInput, parse_input
from tests.cli.program import Program
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import LAYERED, need

Object = dict[str, Any]
DENY_TOUCH = '{tool = "shell", pattern = "touch *", decision = "deny"}'
LOOK = """think: hm
text: Let me look.
call: read_file {"path": "todo.txt"}
call: get_date {}
---
text: Milk.
"""


def objects(text: str) -> list[Object]:
    return [cast(Object, json.loads(line)) for line in text.splitlines()]


def kinds(items: list[Object]) -> list[str]:
    return [item["type"] for item in items]


def send(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def read_turn(process: subprocess.Popen[str]) -> list[Object]:
    """The objects up to the end of the turn, read as they come."""
    assert process.stdout is not None
    items: list[Object] = []
    while not items or items[-1]["type"] != "end_turn":
        items.append(json.loads(process.stdout.readline()))
    return items


def test_a_turn_with_tools(program: Program) -> None:
    done = program.run_scripted(LOOK, "--json", stdin='{"type": "user", "content": "x"}\n')
    items = objects(done.stdout)
    text = "".join(item["content"] for item in items if item["type"] == "text")
    assert (done.returncode, done.stderr, text) == (0, "", "Let me look.Milk.")
    assert {k for k in kinds(items) if k not in ("text", "thinking")} == {
        "tool_use",
        "tool_result",
        "stats",
        "end_turn",
    }
    uses = [item for item in items if item["type"] == "tool_use"]
    results = [item for item in items if item["type"] == "tool_result"]
    assert [u["id"] for u in uses] == [r["id"] for r in results]
    assert uses[0]["input"] == {"path": "todo.txt"}
    assert results[0]["content"] == "buy milk"
    assert items[-1]["reason"] == "stop"


def test_bad_lines_are_told_and_lose_nothing(program: Program) -> None:
    stdin = 'plain text\n{"type": "user"\n\n{"type": "dance"}\n{"type": "user", "content": "last"}'
    done = program.run_scripted("text: a\n---\ntext: b", "--json", stdin=stdin)
    items = objects(done.stdout)
    errors = [item for item in items if item["type"] == "error"]
    assert [e["line"] for e in errors] == [2, 4]
    assert errors[1]["input"] == '{"type": "dance"}'
    assert kinds(items).count("end_turn") == 2
    shown = program.run("sessions", "show", program.sessions[0].stem).stdout
    assert "> plain text\n\na\n\n> last\n\nb\n" in shown


def test_a_pipe_lives_long(program: Program) -> None:
    with program.start("--json", "--temperature", "0") as process:
        for line in ("hello", '{"type": "user", "content": "Which files are here?"}'):
            send(process, line)
            items = read_turn(process)
            assert {"text", "stats"} <= set(kinds(items))
            assert items[-1]["reason"] == "stop"
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")


def test_an_interrupt_ends_the_turn_and_the_next_one_works(program: Program) -> None:
    script = "text: one\ndelay: 60\ntext: never\n---\ntext: two"
    with program.start_scripted(script, "--json") as process:
        send(process, '{"type": "interrupt"}', "first")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["content"] == "one"
        send(process, '{"type": "interrupt"}', "second")
        assert read_turn(process)[-1]["reason"] == "cancelled"
        assert read_turn(process)[0]["content"] == "two"
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_message_steers_the_turn_and_the_mode_changes(program: Program) -> None:
    (program.work / "go").touch()  # one that is made later may stay unseen in the layer
    wait = 'call: execute_command {"command": "until [ -s go ]; do sleep 0.05; done"}'
    write = 'call: write_file {"path": "new", "content": "x"}'
    script = f"{wait}\n---\ntext: one\n---\n{write}\n---\ntext: two"
    process = program.start_scripted(script, "--json", "--approve", "all")
    try:
        send(process, '{"type": "user", "content": "x"}')
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["type"] != "tool_use":
            pass
        send(process, '{"type": "steer", "content": "also y"}', '{"type": "mode", "mode": "plan"}')
        while json.loads(process.stdout.readline()).get("topic") != "mode":
            pass
        (program.work / "go").write_text("go")
        items = read_turn(process)
        assert [i["content"] for i in items if i.get("topic") == "steering"] == ["also y"]
        assert "".join(i["content"] for i in items if i["type"] == "text") == "one"
        send(process, '{"type": "steer", "content": "nothing runs"}')
        (result,) = [i for i in read_turn(process) if i["type"] == "tool_result"]
        assert "plan mode" in result["content"]
    finally:
        process.communicate(timeout=PATIENCE)
    assert not (program.work / "new").exists()


def test_an_interrupted_call_has_its_result(program: Program) -> None:
    script = 'call: execute_command {"command": "sleep 60"}\n---\ntext: two'
    (program.config).mkdir(parents=True)
    (program.config / "config.toml").write_text('[permissions]\napprove = "all"\n')
    with program.start_scripted(script, "--json") as process:
        send(process, "first")
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["type"] != "tool_use":
            pass
        send(process, '{"type": "interrupt"}')
        result, end = read_turn(process)[-2:]
        assert result["content"] == "Error: interrupted by the user"
        assert end["reason"] == "cancelled"
        send(process, "second")
        assert read_turn(process)[0]["content"] == "two"
        process.communicate(timeout=PATIENCE)


def test_an_error_ends_the_turn_and_not_the_conversation(program: Program) -> None:
    done = program.run_scripted("error: gone\n---\ntext: back", "--json", stdin="a\nb\n")
    items = [i for i in objects(done.stdout) if i["type"] != "stats"]
    assert kinds(items) == ["error", "end_turn", "text", "end_turn"]
    assert items[0]["message"] == "gone"
    assert items[1]["reason"] == "error"
    assert done.returncode == 0


def test_a_model_that_does_not_load_is_told(program: Program) -> None:
    done = program.run("--json", "--model", "no-such-model", stdin="x\n")
    (error,) = objects(done.stdout)
    assert (done.returncode, error["error"]) == (1, "ModelLoadError")


def test_one_question_as_json(program: Program) -> None:
    done = program.run_scripted("text: yes", "--json", "-e", "x")
    assert kinds(objects(done.stdout)) == ["text", "stats", "end_turn"]
    assert done.returncode == 0


def test_warnings_are_objects_too(program: Program) -> None:
    (program.work / ".shepherd.toml").write_text('[server]\nhost = "0.0.0.0"\n')
    done = program.run_scripted("text: yes", "--json", "-e", "x")
    first = objects(done.stdout)[0]
    assert (first["type"], first["topic"]) == ("system", "notice")
    assert "server.host ignored" in first["content"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\xff", "not UTF-8"),
        (b"{", "not JSON"),
        (b'{"a":' + b"[" * 100_000, "not JSON"),
        (b"{}", "type"),
        (b'{"type": "user", "content": 1}', "non-empty text"),
        (b'{"type": "user", "content": " "}', "non-empty text"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_input(line)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"type": "mode", "mode": "dance"}, "must be one of ask, edits"),
        ({"type": "mode", "mode": []}, "must be one of ask, edits"),
        ({"type": "approvals", "ask": "yes"}, "true or false"),
        ({"type": "decision", "id": "x", "decision": "yes"}, "must be one of once"),
        ({"type": "decision", "decision": "once"}, 'non-empty text as its "id"'),
        ({"type": "decision", "id": "x", "decision": "deny", "reason": 1}, "must be a text"),
        ({"type": "decision", "id": "x", "decision": "once", "parts": "1"}, "a list of numbers"),
        ({"type": "decision", "id": "x", "decision": "once", "parts": [1.5]}, "a list of numbers"),
        ({"type": "command"}, 'non-empty text as its "command"'),
        ({"type": "steer", "content": ""}, 'non-empty text as its "content"'),
        ({"type": ["user"]}, "must be one of user, steer"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(data: Object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_input(json.dumps(data).encode())


WRITE = 'call: write_file {"path": "new.txt", "content": "1"}\n---\n'


def read_until(process: subprocess.Popen[str], kind: str) -> Object:
    """The next object of this type."""
    assert process.stdout is not None
    while (item := json.loads(process.stdout.readline()))["type"] != kind:
        pass
    return item


def sent(process: subprocess.Popen[str], **data: object) -> None:
    send(process, json.dumps(data))


def test_a_program_approves_steers_and_changes_the_mode(program: Program) -> None:
    script = f"{WRITE}text: a\n---\n{WRITE}text: b\n---\n{WRITE}text: c\n---\ntext: d\n"
    with program.start_scripted(script, "--json") as process:
        send(process, "denied")
        assert read_until(process, "end_turn")["denied"] == 1
        sent(process, type="approvals", ask=True)
        send(process, "allowed")
        question = read_until(process, "approval")
        assert (question["tool"], question["preview"][:3]) == ("write_file", "---")
        sent(process, type="decision", id="approval_x", decision="once")
        assert "No such question" in read_until(process, "error")["message"]
        assert not (program.work / "new.txt").exists()
        sent(process, type="steer", content="and be quick")
        sent(process, type="decision", id=question["id"], decision="once")
        steered = read_until(process, "system")
        assert (steered["topic"], steered["content"]) == ("steering", "and be quick")
        end = read_until(process, "end_turn")
        assert (end["reason"], end["denied"]) == ("stop", 0)
        assert (program.work / "new.txt").exists()
        (program.work / "new.txt").unlink()
        sent(process, type="mode", mode="edits")
        mode = read_until(process, "system")
        assert (mode["topic"], mode["content"]) == ("mode", "edits")
        sent(process, type="command", command="/clear")
        assert read_until(process, "command_result")["command"] == "clear"
        sent(process, type="command", command="/dance")
        assert "There is no command /dance" in read_until(process, "error")["message"]
        sent(process, type="steer", content="without a turn it is a prompt")
        assert read_until(process, "end_turn")["denied"] == 0
        assert (program.work / "new.txt").exists()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_end_of_the_input_denies_open_questions(program: Program) -> None:
    with program.start_scripted(f"{WRITE}text: a\n", "--json") as process:
        sent(process, type="approvals", ask=True)
        send(process, "write")
        read_until(process, "approval")
        out, _ = process.communicate(timeout=PATIENCE)
    assert objects(out)[-1]["denied"] == 1
    assert not (program.work / "new.txt").exists()


def test_one_question_ends_with_the_code_for_a_denial(program: Program) -> None:
    done = program.run_scripted(f"{WRITE}text: a\n", "--json", "-e", "x")
    assert (done.returncode, objects(done.stdout)[-1]["denied"]) == (3, 1)


def test_the_users_own_commands_run_and_the_model_reads_them(program: Program) -> None:
    lines = ["!echo for-$((40 + 2)); exit 3", "!!echo mine", "!"]
    inputs = [json.dumps({"type": "command", "command": line}) for line in lines]
    inputs.append('{"type": "user", "content": "!touch new"}')
    inputs.append('{"type": "command", "command": "/jobs"}')
    done = program.run_scripted("text: I see.", "--json", stdin="\n".join(inputs))
    first, alone, empty, *_, jobs = objects(done.stdout)
    assert first["content"] == "for-42\n(ended with exit code 3)"
    assert (alone["command"], alone["content"]) == ("!!", "mine")
    assert empty["error"] == "InvalidRequestError"
    assert jobs["content"] == "(no background commands)"
    assert not (program.work / "new").exists()  # a message stays a message
    [session] = program.sessions
    assert "for-42" in session.read_text()
    assert "mine" not in session.read_text()


@pytest.mark.parametrize(
    "options",
    [["--notools"], ["--approve", "none"], ["--set", f"permissions.rules=[{DENY_TOUCH}]"]],
)
def test_who_may_not_run_tools_runs_no_own_command(program: Program, options: list[str]) -> None:
    line = '{"type": "command", "command": "!true; touch new"}\n'
    done = program.run_scripted("text: x", "--json", *options, stdin=line)
    (answer,) = objects(done.stdout)
    assert answer["message"].startswith("The command was not run: ")
    assert not (program.work / "new").exists()


def test_an_own_command_can_be_interrupted(program: Program) -> None:
    os.mkfifo(program.work / "go")
    with program.start_scripted("text: x", "--json") as process:
        send(process, '{"type": "command", "command": "!echo begun > go; sleep 3600"}')
        assert (program.work / "go").read_text() == "begun\n"
        send(process, '{"type": "interrupt"}')
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["content"] == "was interrupted by the user"
        process.communicate(timeout=PATIENCE)


def test_a_question_can_be_a_command(program: Program) -> None:
    done = program.run_scripted("text: x", "--json", "-e", "/jobs")
    (answer,) = objects(done.stdout)
    assert (done.returncode, answer["command"]) == (0, "jobs")


def test_every_output_is_in_the_reference(program: Program) -> None:
    items = objects(program.run_scripted(LOOK, "--json", stdin="x\n{\n").stdout)
    assert set(kinds(items)) <= set(OUTPUT_TYPES)


def test_lines_that_are_understood() -> None:
    assert parse_input(b"  ") is None
    assert parse_input(b"[1]") == UserInput("[1]")
    assert parse_input(b'{"type": "user", "content": "a\\nb", "x": 1}') == UserInput("a\nb")
    assert parse_input(b'{"type": "interrupt"}') == Interrupt()


def test_auto_runs_commands_in_the_sandbox_and_says_what_it_refused(program: Program) -> None:
    lines = ["echo made > new; cat new", "cat < /dev/tcp/host.test/80"]
    calls = [f"call: execute_command {json.dumps({'command': line})}\n---\n" for line in lines]
    script = "".join([*calls, "text: done\n"])
    done = program.run_scripted(script, "--json", "--approve", "auto", stdin="go\n")
    items = objects(done.stdout)
    results = [item["content"] for item in items if item["type"] == "tool_result"]
    assert results[0] == "made"
    assert "[the sandbox has no network; not run again" in results[1]
    notices = [item["content"] for item in items if item["type"] == "system"]
    assert any("the sandbox has no network" in notice for notice in notices)


def test_auto_without_a_sandbox_asks_and_says_why(program: Program) -> None:
    script = 'call: execute_command {"command": "touch new"}\n---\ntext: done\n'
    options = ["--json", "--approve", "auto", "--sandbox", "off"]
    items = objects(program.run_scripted(script, *options, stdin="go\n").stdout)
    (result,) = [item["content"] for item in items if item["type"] == "tool_result"]
    assert result == "Error: denied: approval needed and no terminal to ask"
    (notice,) = [item for item in items if item["type"] == "system"]
    assert notice["topic"] == "notice"
    assert notice["content"] == (
        "The sandbox is off (tools.sandbox). So `auto` asks as `ask` does."
    )
    assert not (program.work / "new").exists()


def test_a_program_keeps_some_parts_of_a_turn(program: Program) -> None:
    need(LAYERED[0])
    write = 'call: write_file {"path": "%s", "content": "x"}\n---\n'
    script = f"{write % 'a'}{write % 'b'}text: done\n---\ntext: more\n"
    with program.start_scripted(script, "--json", "--approve", "review") as process:
        sent(process, type="approvals", ask=True)
        send(process, "go")
        first = read_until(process, "approval")
        sent(process, type="decision", id=first["id"], decision="deny", reason="go on")
        question = read_until(process, "approval")
        assert [part["path"] for part in question["parts"]] == ["a", "b"]
        sent(process, type="decision", id=question["id"], decision="once", parts=[3])
        assert "'once' takes parts, from the 2" in read_until(process, "error")["message"]
        sent(process, type="decision", id=question["id"], decision="once", parts=[2])
        notice = read_until(process, "system")
        assert "the user dropped: made a (1 byte)" in notice["content"]
        read_until(process, "end_turn")
    assert not (program.work / "a").exists()
    assert (program.work / "b").exists()
