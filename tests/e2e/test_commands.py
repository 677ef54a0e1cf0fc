"""Slash commands."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_C, CTRL_D
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import LAYERED, need

READY = r"approve: ask"
NAMES = [
    *("help", "clear", "tools", "model", "provider", "system", "context", "stats", "thinking"),
    *("save", "exit", "resume", "approve", "memory", "skills", "jobs"),
]


def test_help_lists_every_command(start: Start) -> None:
    terminal = start("text: x\n", rows=40)
    terminal.wait_for(READY)
    terminal.say("/help")
    shown = terminal.wait_for(r"Ctrl\+D")
    for name in NAMES:
        assert f"\n/{name}" in shown
    assert "|plan|" in shown  # a mode of /approve
    assert re.search(r"(?m)^Tab, while it works +send", shown)


def test_every_command_works_before_and_after_a_turn(start: Start) -> None:
    terminal = start("text: An answer.\n", columns=100, rows=50)
    terminal.wait_for(READY)
    said: list[str] = []
    for count in (1, 2):
        for name in NAMES:
            if name not in ("exit", "clear", "save"):
                terminal.say(f"/{name}")
                said.append(f"/{name}")
                terminal.wait_said(*said)
        said.append("a question")
        terminal.say(said[-1])
        terminal.wait_count("An answer", count)
        terminal.wait_said(*said)
    assert "Error" not in terminal.settle()
    terminal.say("/exit")
    assert terminal.wait_exit() == 0


def test_an_unknown_command_is_corrected_and_not_lost(start: Start) -> None:
    terminal = start("text: x\n")
    terminal.wait_for(READY)
    terminal.say("/contxt please")
    terminal.wait_for("did you mean /context")
    terminal.settle()
    terminal.send("\x1b[A")
    terminal.wait_count("› /contxt please", 2)


def test_a_path_at_the_start_is_a_message(start: Start) -> None:
    terminal = start("text: A path, I see.\n")
    terminal.wait_for(READY)
    terminal.say("/etc/hosts is what?")
    terminal.wait_for("A path, I see")


def test_context_clear_and_save(start: Start, work: Path) -> None:
    terminal = start("text: An answer of six words here.\n", columns=100, rows=40)
    terminal.wait_for(READY)
    terminal.say("a question")
    terminal.wait_for("six words")
    terminal.say("/context")
    for part in (
        "system message",
        "tools",
        "template",
        "your messages",
        "answers",
        "used",
        "free",
    ):
        terminal.wait_for(part)
    terminal.say("/save talk.md")
    terminal.wait_for("Saved to")
    terminal.say("/save talk.json")
    terminal.wait_count("Saved to", 2)
    assert "An answer of six words here." in (work / "talk.md").read_text()
    saved = json.loads((work / "talk.json").read_text())
    assert [m["role"] for m in saved["messages"]] == ["user", "assistant"]
    terminal.say("/save talk.md")
    terminal.wait_for("talk.md exists")
    terminal.say("/clear history")
    assert "starts afresh" not in terminal.wait_for("Error: /clear takes nothing")
    terminal.say("/clear")
    terminal.wait_for("starts afresh")
    terminal.say("/save other.md")
    terminal.wait_for("nothing to save")


def test_the_model_is_switched_and_the_conversation_kept(
    start: Start, tmp_path: Path, work: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("context: 999\ntext: I am the other one.\n")
    terminal = start("text: I am the first.\n", columns=120)
    terminal.wait_for(READY)
    terminal.say("who")
    terminal.wait_for("I am the first")
    terminal.send(f"/model script:{other}\r")
    terminal.wait_for("Now talking to")
    terminal.say("who now")
    terminal.wait_for("I am the other one")
    terminal.wait_for("/999 tokens")
    terminal.send("/model script:/nowhere\r")
    terminal.wait_for("Error: ")
    terminal.say("still there")
    terminal.wait_count("I am the other one", 2)
    terminal.say("/save all.json")
    terminal.wait_for("Saved to")
    assert len(json.loads((work / "all.json").read_text())["messages"]) == 6


def test_a_session_is_resumed_with_its_last_exchanges(start: Start) -> None:
    script = "text: The **first** answer.\n---\ntext: The second answer.\n"
    first = start(script)
    first.wait_for(READY)
    first.say("question one")
    first.wait_for("first answer")
    first.say("question two")
    first.wait_for("second answer")
    first.settle()
    first.send(CTRL_D)
    first.wait_exit()
    line = next(x for x in first.text().splitlines() if "--resume" in x)
    second = start(script, "--resume", line.split("--resume ")[1].strip())
    shown = second.wait_for(READY)
    order = [shown.index(t) for t in ("question one", "first answer", "question two", "second")]
    assert order == sorted(order)
    second.say("question three")
    second.wait_count("first answer", 2)


def test_an_earlier_session_is_taken_up_by_number_or_id(start: Start, home: Path) -> None:
    answers = "text: An answer.\n"
    for question in ("about apples", "about pears"):
        assert start(answers, "-e", question).wait_exit() == 0
    files = list((home / ".local/state/shepherd/sessions").glob("*.jsonl"))
    pears, apples = (
        next(f.stem for f in files if fruit in f.read_text()) for fruit in ("pears", "apples")
    )
    terminal = start(answers, columns=120, rows=50)
    terminal.wait_for(READY)
    terminal.say("/resume")
    shown = terminal.wait_for("/resume NUMBER")
    assert re.search(rf"1 +{pears} .* 2 messages +about pears\n2 +{apples} .* apples", shown)
    terminal.say("/resume 2")
    terminal.wait_for("(?m)^› about apples")
    terminal.say("more of them")
    terminal.wait_count("An answer", 2)
    terminal.say(f"/resume {pears[:-1]}")
    terminal.wait_for(f"/resume {apples} goes back")
    terminal.wait_for("(?m)^› about pears")
    terminal.say(f"/resume {pears}")
    terminal.wait_for("Error: This session is the one you are in")
    terminal.say("/resume 99999")
    terminal.wait_for("Error: No session 99999")
    terminal.send("/resume 2")
    terminal.wait_for(f"(?m)^ +{apples} *$")
    terminal.send(CTRL_C + CTRL_D)
    terminal.wait_for(f"--resume {pears}")
    assert terminal.wait_exit() == 0
    assert "more of them" in (home / f".local/state/shepherd/sessions/{apples}.jsonl").read_text()


def test_what_left_the_context_is_shown_and_forgotten(start: Start) -> None:
    script = "context: 120\ntext: one two three four five six seven eight nine ten\n"
    terminal = start(script, "--system", "", columns=100, rows=50)
    terminal.wait_for(READY)
    terminal.say("the staging database is heron-7")
    for number in range(9):
        terminal.wait_count("nine ten", number + 1)
        terminal.say(f"filler {number}")
    terminal.wait_for("Kept: search_memory finds them")
    terminal.say("/memory search staging")
    terminal.wait_for(r"user\] the staging database is heron-7")
    terminal.say("/memory find staging")
    terminal.wait_for("Error: /memory takes")
    terminal.say("/memory clear")
    terminal.wait_for("from 1 session")
    terminal.say("/memory clear all")
    terminal.wait_for("The memory is empty")
    terminal.say("/memory search staging")
    terminal.wait_for(r"\(no matches\)")


def test_the_provider_is_switched_and_the_conversation_kept(start: Start, home: Path) -> None:
    lines: list[str] = []
    for name in ("alpha", "beta"):
        script = home / f"{name}.txt"
        script.write_text(f"text: I am {name}.\n")
        lines += [f"[{name}]", 'type = "llamacpp"', f'model = "script:{script}"']
    config = home / ".config" / "shepherd"
    config.mkdir(parents=True)
    (config / "providers.toml").write_text("\n".join(lines))
    terminal = start("text: I am local.\n", columns=140, rows=50)
    terminal.wait_for(READY)
    terminal.say("who")
    terminal.wait_for("I am local")
    terminal.say("/provider")
    assert "* local" in terminal.wait_for("beta +llamacpp")
    for command, name in (("/provider next", "alpha"), ("/provider use beta", "beta")):
        terminal.say(command)
        terminal.wait_for(f"Now talking to {name}")
        terminal.say(f"who after {command}")
        terminal.wait_for(f"I am {name}")
    terminal.say("/provider nobody")
    terminal.wait_for("there are alpha, beta")
    terminal.say("/save all.json")
    terminal.wait_for("6 messages|Saved to")


def test_jobs_lists_shows_and_ends_background_commands(start: Start, tmp_path: Path) -> None:
    line = "echo from behind; touch begun; sleep 3600"
    call = f'{{"command": "{line}", "background": true}}'
    terminal = start(f"call: execute_command {call}\n---\ntext: Started.\n", "--approve", "all")
    terminal.wait_for(READY.replace("ask", "all"))
    terminal.say("start")
    terminal.wait_for("Started.")
    until(lambda: any(tmp_path.rglob("begun")))
    terminal.say("/jobs")
    terminal.wait_for(rf"command 1 \({line}\): running")
    terminal.say("/jobs output 1")
    terminal.wait_for(r"/jobs output 1[\s\S]*from behind\n")
    terminal.say("/jobs kill 2")
    terminal.wait_for("There is no background command '2'")
    terminal.say("/jobs kill 1")
    terminal.wait_for(r"sleep 3600\): killed after")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_first_continue_in_a_directory_begins_a_session(start: Start) -> None:
    terminal = start("text: An answer.\n", "--continue")
    terminal.wait_for(READY)
    terminal.say("/usage")
    terminal.wait_for("since the start +0 tokens read")
    terminal.say("hello")
    terminal.wait_for("An answer")
    terminal.say("/export talk.html")
    terminal.wait_for("Saved to")
    terminal.say("/quit")
    assert terminal.wait_exit() == 0


def test_an_idle_terminal_asks_about_what_a_job_has_changed(
    start: Start, work: Path, tmp_path: Path
) -> None:
    need(LAYERED[0])
    (work / "go").touch()
    line = "echo 1 > so-far; until [ -s go ]; do sleep 0.1; done; echo 2 > made"
    call = json.dumps({"command": line, "background": True})
    script = f"call: execute_command {call}\n---\ntext: Started.\n---\ntext: I see.\n"
    terminal = start(script, columns=140, rows=50)
    terminal.wait_for(READY)
    terminal.say("start")
    terminal.wait_for("Started.")
    until(lambda: any(tmp_path.rglob("upper/so-far")))
    terminal.say("/jobs keep 1")
    terminal.choose("y")
    terminal.wait_for("its changes were kept")
    assert (work / "so-far").read_text() == "1\n"

    (work / "go").write_text("go")
    terminal.choose("y")
    terminal.wait_for(r"ended with exit code 0 after \d+ s; its\s+changes\s+were\s+kept")
    assert not re.search(r"running .* Esc stops", terminal.visible())
    assert (work / "made").read_text() == "2\n"
    terminal.say("and")
    terminal.wait_for("I see.")
