"""Questions before a tool runs."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import ENTER, ESCAPE, QUIET, Terminal

READY = r"(?m)^script · .*tokens"
WRITE = 'call: write_file {"path": "new.txt", "content": "alpha\\nbeta\\n"}\n'
SCRIPT = f"{WRITE}---\ntext: It is done.\n"
SHIFT_TAB = f"{ESCAPE}[Z"
UP, DOWN, PAGE_UP, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
WIDTHS = pytest.mark.parametrize(("columns", "no_color"), [(40, "1"), (80, "")])


def _asked(start: Start, script: str = SCRIPT, **options: object) -> Terminal:
    options = {"columns": 100, "rows": 30, **options}
    terminal = start(script, **options)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_asked()
    return terminal


def _command(command: str) -> str:
    call = json.dumps({"command": command})
    return f"call: execute_command {call}\n---\ntext: It is done.\n"


def _marked(terminal: Terminal) -> str:
    found = re.search(r"(?m)^› \d (\w+) |\[(\w+)\] ", terminal.visible())
    return (found[1] or found[2]) if found else ""


def _unwrapped(screen: str) -> str:
    """The text inside the gutter, put together again."""
    rows = re.findall(r"(?m)^  ([│┊]) ?(.*)$", screen)
    return "".join(("\n" if gutter == "│" else "") + text for gutter, text in rows)


def _paged(terminal: Terminal) -> str:
    """All of the text, page by page, as far as it fills each page."""
    terminal.send("g")
    terminal.wait_for(r"lines 1-")
    pages = [terminal.settle()]
    while not re.search(r"-(\d+) of \1,", terminal.visible()):
        before = re.findall(r"lines .* of \d+", terminal.visible())
        terminal.send(PAGE_DOWN)
        terminal.wait_gone(re.escape(before[0]))
        pages.append(terminal.visible())
    return "\n".join(pages)


@WIDTHS
def test_the_question_shows_the_tool_the_diff_and_the_exact_rules(
    start: Start, work: Path, columns: int, no_color: str
) -> None:
    terminal = _asked(start, columns=columns, env={"NO_COLOR": no_color})
    shown = terminal.settle()
    assert "● write_file new.txt\nAllow write_file?  (ask write /**)\n  │ --- new.txt" in shown
    assert "+alpha\n  │ +beta\n  writes /" in shown
    assert f"writes{work / 'new.txt'}" in "".join(shown.split())
    assert _marked(terminal) == "once"
    assert "until this session ends" not in " ".join(terminal.visible().split())
    for word, rule in (
        ("session", f"allow write_file {{cwd}}/** (in {work}, until this session ends)"),
        ("always", f"allow write_file {{cwd}}/new.txt (in {work}, kept for later sessions)"),
    ):
        terminal.send(DOWN)
        terminal.wait_for(rf"› \d {word}")
        assert "".join(rule.split()) in "".join(terminal.settle().split())
    assert not (work / "new.txt").exists()


def test_once_runs_the_tool_and_leaves_the_change_on_the_screen(start: Start, work: Path) -> None:
    terminal = _asked(start)
    terminal.choose("y")
    shown = terminal.wait_for("It is done")
    assert (work / "new.txt").read_text() == "alpha\nbeta\n"
    assert shown.count("+alpha") == 1
    assert "allowed once" in shown
    terminal.wait_gone("Allow write_file")
    terminal.send("\x0f")  # Ctrl+O shows it once more
    terminal.wait_for(r"(?s)│ \+beta.*result 1 of 1")


def test_no_denies_at_once_and_the_model_goes_on(start: Start, work: Path) -> None:
    terminal = _asked(start)
    terminal.choose("n")
    shown = terminal.wait_for("It is done")
    assert "denied by the user" in shown
    assert not (work / "new.txt").exists()


def test_feedback_goes_to_the_model(start: Start, work: Path) -> None:
    terminal = _asked(start)
    terminal.choose("f")
    terminal.wait_for("tell the model:")
    terminal.send("use another name")
    terminal.wait_for("use another name")
    terminal.send(ENTER)
    terminal.wait_for("Error: denied by the user: use another name")
    terminal.wait_for("It is done")
    assert not (work / "new.txt").exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_escape_denies_and_stops_the_turn(start: Start, work: Path, moment: str) -> None:
    terminal = _asked(start)
    if moment == "after":
        time.sleep(QUIET)
    # at once: a busy machine could carry out the yes before the second key
    terminal.send(ENTER + ESCAPE if moment == "after" else ESCAPE)
    shown = terminal.wait_for("interrupted")
    assert "It is done" not in shown
    terminal.wait_gone("Allow write_file")
    assert not (work / "new.txt").exists()
    terminal.say("go on")
    terminal.wait_for("It is done")


def test_a_rule_for_the_session_is_not_asked_again(start: Start, work: Path) -> None:
    terminal = _asked(start, SCRIPT + "---\n" + SCRIPT)
    terminal.choose("s")
    terminal.wait_for("It is done")
    (work / "new.txt").unlink()
    terminal.say("again")
    terminal.wait_count("It is done", 2)
    assert (work / "new.txt").exists()


def test_prose_is_a_message_and_never_an_answer(start: Start, home: Path, work: Path) -> None:
    terminal = _asked(start)
    for count, prose in enumerate(("stop", "any"), start=1):
        for letter in prose:
            terminal.send(letter)
            terminal.settle(0.02)
        terminal.wait_for(f"› {prose}")
        assert _marked(terminal) == "once"
        if count == 1:
            terminal.settle(QUIET)
        terminal.send(ENTER)
        terminal.wait_gone(f"› {prose}")
        terminal.wait_for("The message waits")
        terminal.wait_for(f"waiting: {prose}")
        terminal.send("\x1b[B\x1b[A")  # it is still there after other keys
        terminal.wait_gone("The message waits")
        assert f"waiting: {prose}" in terminal.visible()
    assert "Allow write_file" in terminal.settle(2 * QUIET)
    assert not (work / "new.txt").exists()
    assert not list(home.rglob("permissions.toml"))
    terminal.choose("n")
    terminal.wait_for("(?m)^› stop$")
    assert not (work / "new.txt").exists()


def test_a_key_right_after_a_yes_takes_it_back(start: Start, work: Path) -> None:
    terminal = _asked(start)
    for key in (" ", DOWN):
        time.sleep(QUIET)
        terminal.send(ENTER + key)
        terminal.wait_for("nothing was approved")
        terminal.settle(2 * QUIET)
        assert re.search("Allow write_file", terminal.visible())
    assert not (work / "new.txt").exists()


def test_what_is_typed_ahead_is_no_answer(start: Start, work: Path) -> None:
    terminal = start(f"text: Wait.\ndelay: 1\n{SCRIPT}", columns=100, rows=30)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_for("Wait")
    terminal.send("\r\r")
    terminal.wait_asked()
    terminal.send(DOWN + UP + ENTER)  # at once, as the end of what was typed
    terminal.wait_for("Too soon")
    assert "Allow write_file" in terminal.settle(2 * QUIET)
    assert not (work / "new.txt").exists()


def test_keys_that_come_while_the_program_can_not_draw_are_no_answer(
    start: Start, work: Path
) -> None:
    terminal = start(f"text: Wait.\ndelay: 1\n{SCRIPT}", columns=100, rows=30)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_for("Wait")
    terminal.process.send_signal(signal.SIGSTOP)
    terminal.send("y\r")
    time.sleep(2)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for("Allow write_file")
    assert "Allow write_file" in terminal.settle(2 * QUIET)
    assert not (work / "new.txt").exists()


def test_a_paste_goes_to_the_prompt(start: Start, work: Path) -> None:
    terminal = _asked(start)
    time.sleep(QUIET)
    terminal.paste("y\n\n")
    terminal.wait_for("› y")
    assert "Allow write_file" in terminal.settle(2 * QUIET)
    assert not (work / "new.txt").exists()


def test_somebody_in_the_middle_of_typing_does_not_answer_by_accident(
    start: Start, work: Path
) -> None:
    terminal = start(f"text: Wait.\ndelay: 1\n{SCRIPT}", columns=100, rows=30)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_for("Wait")
    while "Allow write_file" not in terminal.visible():
        terminal.send("yy")
        terminal.settle(0.1)
    terminal.send("yay")
    terminal.wait_for("yyay")
    terminal.wait_for("Typing a message")
    assert not (work / "new.txt").exists()
    terminal.send(DOWN)
    terminal.wait_for(r"› \d session")
    terminal.choose("y")
    terminal.wait_for("It is done")
    assert (work / "new.txt").exists()
    terminal.wait_for("› y+yay")


@WIDTHS
def test_all_of_a_long_command_can_be_paged_and_a_yes_waits_for_its_end(
    start: Start, work: Path, columns: int, no_color: str
) -> None:
    lines = [f"echo {n} {'x' * (n * 7 % 300)}" for n in range(60)]
    command = "\n".join([f"true {'y' * 400}", *lines, "touch end-of-it"])
    env = {"NO_COLOR": no_color}
    terminal = _asked(start, _command(command), columns=columns, rows=24, env=env)
    time.sleep(QUIET)
    assert "end-of-it" not in terminal.visible()
    terminal.send(ENTER)
    terminal.wait_for("Enter shows what follows")
    assert not (work / "end-of-it").exists()
    shown = "".join(_unwrapped(_paged(terminal)).split())
    for line in (*lines, "touch end-of-it"):
        assert "".join(line.split()) in shown
    assert "y" * 400 in shown
    terminal.send("g")
    terminal.wait_for("lines 1-")
    terminal.choose("y")
    terminal.wait_for("It is done")
    assert (work / "end-of-it").exists()


@WIDTHS
def test_what_would_not_be_seen_is_spelled_out(
    start: Start, work: Path, columns: int, no_color: str
) -> None:
    codes = (0x200B, 0x202E, 0x2060, 0xFEFF, 0xAD, 0x3164, 0xFE0F, 0xA0, 0xE0041)
    hidden = "".join(map(chr, codes))
    zalgo = "z" + "\u0301" * 20
    command = f"echo {hidden} {zalgo}{' ' * 300}; touch it # https://p\u0430ypal.com"
    env = {"NO_COLOR": no_color}
    terminal = _asked(start, _command(command), columns=columns, rows=40, env=env)
    shown = _unwrapped(terminal.settle())
    for character in hidden:
        assert f"<U+{ord(character):04X}>" in shown
    assert shown.count("<U+0301>") == 17
    assert "<300 whitespace characters>; touch it" in shown
    said = "".join(terminal.text().split())
    assert "xn--pypal-4ve.com" in said
    assert "hiddencharacters" in said
    assert not set(hidden) & set(terminal.text())


def test_a_large_change_is_all_there(start: Start, work: Path) -> None:
    (work / "new.txt").write_text("".join(f"old {n}\n" for n in range(2500)))
    content = "".join(f"new {n}\n" for n in range(2500))
    call = json.dumps({"path": "new.txt", "content": content})
    terminal = _asked(start, f"call: write_file {call}\n---\ntext: It is done.\n")
    terminal.wait_for(r"lines 1-\d+ of 5004,")
    terminal.send("G")
    terminal.wait_for(r"\+new 2499")
    terminal.choose("y")
    shown = terminal.wait_for("It is done")
    assert "(4943 more lines)" in shown


def test_a_small_window_shows_the_question_too(start: Start, work: Path) -> None:
    terminal = _asked(start, columns=40, rows=11)
    terminal.send("G")
    terminal.wait_for("of 6, 100 %")
    terminal.choose("s")
    terminal.wait_for("It is done")
    assert (work / "new.txt").exists()


def test_a_window_that_is_too_small_approves_nothing(start: Start, work: Path) -> None:
    terminal = start(_command("touch it\ntrue\ntrue\ntrue"), columns=40, rows=7)
    terminal.wait_for("tokens")
    terminal.say("write it")
    terminal.wait_for("too small")
    for _ in range(3):
        time.sleep(QUIET)
        terminal.send(ENTER)
    assert "too small" in terminal.settle(2 * QUIET)
    assert not (work / "it").exists()
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")


def test_a_key_turns_the_mode_and_auto_runs_commands_in_the_sandbox(
    start: Start, work: Path
) -> None:
    script = 'call: execute_command {"command": "echo x > new; cat new"}\n---\ntext: It is done.\n'
    terminal = start(script, columns=100, rows=30)
    terminal.wait_for(READY)
    cycle = ("edits", "review", "plan", "auto")
    for mode in (*cycle, "ask", *cycle):
        terminal.send(SHIFT_TAB)
        terminal.wait_for(rf"approve: {mode}\b")
    terminal.say("run it")
    shown = terminal.wait_for("It is done")
    assert "Allow" not in shown
    assert (work / "new").read_text() == "x\n"


def test_auto_without_a_sandbox_says_why(start: Start) -> None:
    script = 'call: execute_command {"command": "true"}\n---\ntext: It is done.\n'
    terminal = start(script, "--approve", "auto", "--sandbox", "off", columns=100, rows=30)
    terminal.wait_for(r"approve: auto \(asks: no sandbox\)")
    terminal.wait_for("The sandbox is off")
    terminal.say("run it")
    terminal.wait_asked()


def test_a_plan_is_accepted_and_carried_out(start: Start, work: Path) -> None:
    write = 'call: write_file {"path": "new.txt", "content": "x"}'
    present = 'call: present_plan {"plan": "1. write new.txt"}'
    terminal = start(f"{write}\n---\n{present}\n---\n{write}\n---\ntext: All done.\n")
    terminal.wait_for("approve: ask")
    terminal.say("/approve plan")
    terminal.wait_for("approve: plan")
    terminal.say("do it")
    terminal.wait_for(r"Carry out this plan\?")
    terminal.wait_for("Error: denied")
    terminal.choose("s")
    terminal.wait_for("All done")
    terminal.wait_for("approve: edits")
    assert (work / "new.txt").read_text() == "x"
