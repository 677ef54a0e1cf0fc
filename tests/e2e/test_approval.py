"""Questions before a tool runs."""

from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import ENTER, ESCAPE, Terminal

READY = r"approve: ask"
WRITE = 'call: write_file {"path": "new.txt", "content": "alpha\\nbeta\\n"}\n'
SCRIPT = f"{WRITE}---\ntext: It is done.\n"


def _asked(start: Start, script: str = SCRIPT) -> Terminal:
    terminal = start(script, columns=100, rows=30)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_for("Allow write_file")
    return terminal


def test_the_question_shows_the_diff_and_the_exact_rules(start: Start, work: Path) -> None:
    terminal = _asked(start)
    shown = terminal.settle()
    assert "+alpha" in shown
    assert "+beta" in shown
    assert "allow write" in shown
    assert "until this session ends" in shown
    assert "kept for later sessions" in shown
    assert not (work / "new.txt").exists()
    terminal.choose("y")
    shown = terminal.wait_for("It is done")
    assert (work / "new.txt").read_text() == "alpha\nbeta\n"
    assert shown.count("+alpha") == 1
    terminal.wait_gone("Allow write_file")


def test_no_denies_and_the_model_goes_on(start: Start, work: Path) -> None:
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


def test_escape_denies_and_stops_the_turn(start: Start, work: Path) -> None:
    terminal = _asked(start)
    terminal.send(ESCAPE)
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


def test_somebody_in_the_middle_of_typing_does_not_answer_by_accident(
    start: Start, work: Path
) -> None:
    terminal = start(f"text: Wait.\ndelay: 1\n{SCRIPT}", columns=100, rows=30)
    terminal.wait_for(READY)
    terminal.say("write it")
    terminal.wait_for("Wait")
    while "Allow write_file" not in terminal.visible():
        terminal.send("yy")  # keys that come together are never an answer
        terminal.settle(0.1)
    terminal.send("yay")
    terminal.wait_for("yyay")
    assert not (work / "new.txt").exists()
    terminal.settle(1.0)
    terminal.choose("y")
    terminal.wait_for("It is done")
    assert (work / "new.txt").exists()
    terminal.wait_for("› y+yay")
