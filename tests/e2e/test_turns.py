"""Answers on the screen, and stopping them."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_C, ESCAPE
from tests.pictures import png

READY = r"approve: ask"
LONG = "\\n".join(f"- item number {n} of the list" for n in range(1, 61))
CODE = "\\n".join(f"line_{n} = {n}" for n in range(1, 61))
PARAGRAPH = " ".join(f"word{n}" for n in range(1, 400))
ANSWERS = {
    f"{LONG}\\n\\nend of the list": ["item number 1", "item number 30", "end of the list"],
    f"```python\\n{CODE}\\n```\\nend of the code": ["line_1", "line_60", "end of the code"],
    f"# Title\\n\\n{PARAGRAPH}\\n\\nend of text": ["Title", "word1", "word200", "end of text"],
    "| name | v |\\n|---|---|\\n| alpha | 1 |\\n| beta | 2 |\\nrow end": [
        "alpha",
        "beta",
        "row end",
    ],
}
"""Answers, and what must be on the screen once; the last comes last."""


def test_generation_stops_at_once_and_the_next_turn_works(start: Start) -> None:
    going_on = "text: The beginning.\ndelay: 600\ntext: never\n"
    terminal = start(f"{going_on}---\n{going_on}---\ntext: Next answer.\n")
    terminal.wait_for(READY)
    for count, key in enumerate((CTRL_C, ESCAPE), start=1):
        terminal.say("hello")
        terminal.wait_count("The beginning", count)
        terminal.send(key)
        terminal.wait_count("interrupted", count)
        terminal.settle()
    terminal.say("and now")
    shown = terminal.wait_for("Next answer")
    assert shown.count("The beginning") == 2
    assert "never" not in shown


def test_a_stop_before_the_first_word_works_too(start: Start) -> None:
    terminal = start("delay: 600\n---\ntext: Next answer.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Esc stops")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    terminal.say("and now")
    terminal.wait_for("Next answer")


def test_ctrl_c_with_text_clears_it_first_then_stops(start: Start) -> None:
    terminal = start("text: Working.\ndelay: 600\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Working")
    terminal.send("draft")
    terminal.wait_for("› draft")
    terminal.send(CTRL_C)
    assert "interrupted" not in terminal.wait_gone("draft")
    terminal.send(CTRL_C)
    terminal.wait_for("interrupted")


def test_what_waited_comes_back_to_the_prompt_when_the_turn_is_stopped(start: Start) -> None:
    terminal = start("text: Working.\ndelay: 600\n---\ntext: Too early.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Working")
    terminal.say("next question")
    terminal.wait_for("waiting: next question")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    terminal.wait_for("› next question")
    assert "Too early" not in terminal.settle()


def test_a_running_command_is_stopped(start: Start) -> None:
    terminal = start(
        'call: execute_command {"command": "echo begun; sleep 600"}\n---\ntext: Next answer.\n'
    )
    terminal.wait_for(READY)
    terminal.say("/approve all")
    terminal.wait_for("approve: all")
    terminal.say("run it")
    terminal.wait_for("running execute_command")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    terminal.say("and now")
    terminal.wait_for("Next answer")


def test_each_piece_of_an_answer_is_shown_exactly_once(start: Start) -> None:
    script = "---\n".join(f'chunk: 9\ntext: "{text}"\n' for text in ANSWERS)
    terminal = start(script)
    terminal.wait_for(READY)
    for number, pieces in enumerate(ANSWERS.values(), start=1):
        terminal.say(f"question {number}")
        terminal.wait_for(pieces[-1])
    shown = terminal.settle()
    for piece in (p for pieces in ANSWERS.values() for p in pieces):
        assert len(re.findall(rf"\b{piece}\b", shown)) == 1, shown
    assert len(re.findall(r"approve: ask", shown)) == 1
    assert len(re.findall(r"^›\s*$", shown, re.MULTILINE)) == 1


def test_the_open_part_of_an_answer_is_visible_before_it_is_finished(start: Start) -> None:
    terminal = start('text: "An unfinished sentence"\ndelay: 600\n')
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("An unfinished sentence")


@pytest.mark.parametrize("sizes", [[(60, 24), (100, 24)], [(40, 24), (120, 24), (80, 24)]])
def test_resizing_while_an_answer_streams_loses_and_doubles_nothing(
    start: Start, sizes: list[tuple[int, int]]
) -> None:
    steps = "\n".join(f'text: "- point {n}\\n"\ndelay: 0.05' for n in range(1, 31))
    terminal = start(f"{steps}\n---\ntext: The second answer.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    for number, (columns, rows) in enumerate(sizes, start=1):
        terminal.wait_for(f"point {number * 4}\\b")
        terminal.resize(columns, rows)
    terminal.wait_for(r"point 30\b")
    terminal.wait_gone("Esc stops")
    terminal.say("again")
    shown = terminal.wait_for("The second answer")
    for number in range(1, 31):
        assert len(re.findall(rf"point {number}\b", shown)) == 1, shown


def test_reasoning_is_shown_dimmed_or_hidden(start: Start) -> None:
    terminal = start('think: "First I wonder.\\nThen I know.\\n"\ntext: Done.\n')
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Done")
    assert "First I wonder" in terminal.text()
    terminal.say("/thinking hide")
    terminal.wait_for("thinking: off, hidden")
    terminal.say("again")
    shown = terminal.wait_count("Done", 2)
    assert shown.count("First I wonder") == 1
    assert "thought:" in shown


def test_nothing_that_a_model_or_a_file_says_steers_the_terminal(start: Start, work: Path) -> None:
    (work / "evil.txt").write_text("\x1b]0;title\x07\x1b[2Jcontent\u202e")
    terminal = start(
        'text: "before \\u001b[2J\\u001b]0;pwned\\u0007 \\u009b31m after"\n'
        'call: read_file {"path": "evil.txt"}\n'
        'call: no_such {"path": "\\u001b[2J"}\n---\ntext: End.\n'
    )
    terminal.wait_for(READY)
    terminal.say("hello")
    shown = terminal.wait_for("End")
    assert "before" in shown
    assert "after" in shown
    assert r"\x1b[2J" in shown
    drawn = terminal.output
    for own in (b"\x1b]0;Shepherd: work\x07", b"\x1b]10;?\x07", b"\x1b]11;?\x07"):
        drawn = drawn.replace(own, b"")
    for forbidden in (b"\x1b[2J", b"\x1b]", b"\x9b", "\u009b".encode(), "\u202e".encode()):
        assert forbidden not in drawn
    assert "pwned" not in terminal.screen.title


def test_an_error_of_the_backend_is_told_and_the_session_goes_on(start: Start) -> None:
    terminal = start("error: the upstream is gone\n---\ntext: Back again.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Error: the upstream is gone")
    terminal.say("again")
    terminal.wait_for("Back again")


def test_the_plan_of_a_turn_that_failed_stays_above_the_next_one(start: Start) -> None:
    plan = 'call: update_plan {"steps": [{"step": "Look around", "status": "in_progress"}]}'
    terminal = start(f"{plan}\n---\nerror: the upstream is gone\n---\ntext: Back again.\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("Error: the upstream is gone")
    terminal.say("again")
    terminal.wait_for("Back again")
    shown = terminal.settle()
    assert shown.count("Look around") == 1
    assert shown.index("Look around") < shown.index("Back again")


def test_a_mentioned_image_goes_along(start: Start, work: Path) -> None:
    (work / "photo.png").write_bytes(png(64, 48))
    terminal = start("text: A cat.\n")
    terminal.wait_for(READY)
    terminal.say("what is @photo.png")
    terminal.wait_for(r"attached photo.png \(64×48, 1 kB\)")
    terminal.wait_for("A cat")
    terminal.say("/save talk.json")
    terminal.wait_for("Saved to")
    assert "[image photo.png, 64×48]\\nwhat is @photo.png" in (work / "talk.json").read_text()


def test_a_model_that_can_not_see_gets_no_image(start: Start, work: Path) -> None:
    (work / "photo.png").write_bytes(png())
    terminal = start("vision: no\ntext: Never.\n")
    terminal.wait_for(READY)
    terminal.say("what is @photo.png")
    terminal.wait_for("can't see images")
    terminal.wait_count("› what is @photo.png", 2)


def test_a_mentioned_file_goes_along(start: Start, work: Path) -> None:
    (work / "notes.txt").write_text("remember the milk\n")
    (work / ".env").write_text("SECRET=1\n")
    terminal = start("text: Seen.\n")
    terminal.wait_for(READY)
    terminal.say("what is in @notes.txt, please")
    terminal.wait_for("attached: notes.txt")
    terminal.wait_for("Seen")
    terminal.say("/save talk.json")
    terminal.wait_for("Saved to")
    assert "remember the milk" in (work / "talk.json").read_text()
    terminal.say("and @.env")
    terminal.wait_for("Error: @.env: denied")
    terminal.wait_count("› and @.env", 2)
