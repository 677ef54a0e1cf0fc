"""Typing, pasting, clearing, leaving."""

import re
import stat
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, ENTER, ESCAPE, TAB, Terminal

READY = r"approve: ask"
HELLO = "text: Good day.\n"
UNTIL_TOLD = 'call: execute_command {"command": "until [ -s go ]; do sleep 0.1; done"}'
"""Waits until the file `go`, which is there, is no longer empty.

A command in a layer that has looked for a missing file need not see one that is made later.
"""


def test_a_typed_question_is_answered(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    terminal.say("hello")
    shown = terminal.wait_for("Good day")
    assert "› hello" in shown
    assert terminal.wait_for(r"\d+/32.8k tokens")


def test_what_is_typed_while_the_model_works_is_sent_afterwards(start: Start, work: Path) -> None:
    (work / "go").touch()
    script = f"{UNTIL_TOLD}\n---\ntext: first answer\n---\ntext: second answer\n"
    terminal = start(script, "--approve", "all")
    terminal.wait_for("approve: all")
    terminal.say("one")
    terminal.wait_for("running execute_command")
    terminal.say("two")
    terminal.wait_for("waiting: two")
    terminal.send("three" + ALT_ENTER + "\x1bb")  # Alt is not Esc: it stops nothing
    terminal.send("four")
    terminal.wait_for("› fourthree")
    (work / "go").write_text("go")
    shown = terminal.wait_for("second answer")
    order = [shown.index(t) for t in ("› one", "first answer", "› two", "second answer")]
    assert order == sorted(order)


def test_a_message_steers_the_turn_and_a_waiting_one_is_taken_back(
    start: Start, work: Path
) -> None:
    (work / "go").touch()
    terminal = start(f"{UNTIL_TOLD}\n---\ntext: hello\n---\ntext: second\n", "--approve", "all")
    terminal.wait_for("approve: all")
    terminal.say("one")
    terminal.wait_for("running execute_command")
    terminal.say("two")
    terminal.wait_for("waiting: two")
    terminal.send("\x1b[A")
    terminal.wait_for("› two")
    terminal.wait_gone("waiting: two")
    terminal.send(" more" + TAB)
    terminal.wait_for("next step: two more")
    (work / "go").write_text("go")
    shown = terminal.wait_for("hello")
    assert shown.index("› one") < shown.index("› two more") < shown.index("hello")
    assert "second" not in terminal.settle()


@pytest.mark.parametrize("command", ["sleep 600", "trap '' TERM; while :; do sleep 1; done"])
def test_a_message_that_waited_does_not_become_a_part_of_a_command(
    command: str, start: Start, work: Path
) -> None:
    """Also while the command of the turn takes its time to end."""
    script = f'call: execute_command {{"command": "{command}"}}\n---\ntext: second answer\n'
    terminal = start(script, "--approve", "all")
    terminal.wait_for("approve: all")
    terminal.say("one")
    terminal.wait_for("running execute_command")
    terminal.say("!sleep 600")  # it runs beside the model, so the next one waits
    terminal.say("!touch by-command")
    terminal.wait_for("waiting: !touch")
    terminal.say("touch by-message")
    terminal.wait_for("waiting: touch")
    terminal.send("\x1b")
    terminal.wait_for("› !touch by-command")
    terminal.wait_for("was interrupted by the user")  # the command beside, at times the first one
    terminal.send("\r")
    terminal.wait_for("second answer")
    assert (work / "by-command").exists()
    assert not (work / "by-message").exists()


def test_ctrl_c_clears_the_text_keeps_it_in_the_history_and_never_leaves(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    terminal.send("not this")
    terminal.wait_for("› not this")
    terminal.send(CTRL_C)
    terminal.wait_gone("not this")
    terminal.send("\x1b[A")
    terminal.wait_for("› not this")
    terminal.send(CTRL_C)
    terminal.wait_gone("not this")
    terminal.send(CTRL_C)
    terminal.wait_for(r"Ctrl\+D leaves")
    terminal.say("hello")
    terminal.wait_for("Good day")


def test_ctrl_d_leaves_with_the_terminal_as_it_was(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    assert terminal.modes() != terminal.modes_before
    terminal.say("hello")
    terminal.wait_for("Good day")
    terminal.settle()
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    assert terminal.modes() == terminal.modes_before
    assert re.search(r"shepherd --resume \S+", terminal.text())
    for on, off in ((b"\x1b[?2004h", b"\x1b[?2004l"), (b"\x1b[?1004h", b"\x1b[?1004l"),
                    (b"\x1b[22;0t", b"\x1b[23;0t")):  # fmt: skip
        assert terminal.output.rindex(off) > terminal.output.rindex(on)
    assert terminal.output.count(b"\x1b[?25l") == 0 or (
        terminal.output.rindex(b"\x1b[?25h") > terminal.output.rindex(b"\x1b[?25l")
    )


def test_a_signal_leaves_the_terminal_as_it_was(start: Start) -> None:
    terminal = start("text: going\ndelay: 600\n")
    terminal.wait_for(READY)
    terminal.say("hello")
    terminal.wait_for("going")
    terminal.process.terminate()
    assert terminal.wait_exit() == 143
    assert terminal.modes() == terminal.modes_before


def test_several_pasted_lines_are_one_message(start: Start) -> None:
    terminal = start("text: First answer.\n---\ntext: Second answer.\n")
    terminal.wait_for(READY)
    terminal.paste("first line\nsecond line\n\nfourth line\n")
    terminal.wait_for("fourth line")
    assert "answer" not in terminal.settle()
    terminal.send(ENTER)
    terminal.wait_for("First answer")
    assert "Second" not in terminal.settle()


def test_a_burst_is_a_paste_where_the_terminal_marks_none(start: Start) -> None:
    terminal = start("text: First answer.\n---\ntext: Second answer.\n", env={"TERM": "linux"})
    terminal.wait_for(READY)
    terminal.send("def f():\r    return 1\r\rf()")
    terminal.wait_for(r"(?m)^  f\(\)$")
    assert "answer" not in terminal.settle()
    terminal.send(ENTER)
    terminal.wait_for("First answer")
    assert "Second" not in terminal.settle()


def test_lines_are_broken_by_alt_enter_ctrl_j_and_a_backslash(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    for keys, line in ((ALT_ENTER, "one"), (CTRL_J, "two")):
        terminal.send(line)
        terminal.wait_for(line)
        terminal.send(keys)
    terminal.send("three\\")
    terminal.wait_for(r"three\\")
    terminal.send(ENTER)
    terminal.wait_gone(r"three\\")
    terminal.send("four")
    assert "› one\n  two\n  three\n  four" in terminal.wait_for("four")
    terminal.send(ENTER)
    terminal.wait_for("Good day")


def test_earlier_messages_are_searched(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    for count, text in enumerate(("about apples", "about pears"), start=1):
        terminal.say(text)
        terminal.wait_count("Good day", count)
    terminal.send("\x12appl")
    terminal.wait_for("› about apples\n.*appl")
    terminal.send(ENTER)
    terminal.wait_count("(?m)^› about apples$", 2)
    terminal.send(ENTER)
    terminal.wait_count("Good day", 3)


def test_commands_and_files_are_completed(start: Start, work: Path) -> None:
    (work / "chapter-one.txt").write_text("x")
    terminal = start(HELLO)
    terminal.wait_for(READY)
    terminal.send("/conte")
    terminal.wait_for("what fills the context")
    terminal.send(TAB)
    terminal.wait_for("› /context")
    terminal.send(ESCAPE)
    terminal.wait_gone("what fills the context")
    terminal.send(CTRL_C)
    terminal.send("see @chap")
    terminal.wait_for("chapter-one.txt")
    terminal.send(TAB)
    terminal.wait_for("› see @chapter-one.txt")
    terminal.send(ESCAPE)
    terminal.settle()
    terminal.send(ENTER)
    terminal.wait_for("attached: chapter-one.txt")
    terminal.wait_for("Good day")


def test_the_history_is_kept_for_the_next_start_and_private(start: Start, home: Path) -> None:
    first = start(HELLO)
    first.wait_for(READY)
    first.say("remember me")
    first.wait_for("Good day")
    first.send(CTRL_D)
    first.wait_exit()
    history = home / ".local/state/shepherd/history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    second = start(HELLO)
    second.wait_for(READY)
    second.send("\x1b[A")
    second.wait_for("› remember me")


VI = '[terminal]\nedit_mode = "vi"\n'


def _vi(start: Start, home: Path, script: str = HELLO) -> Terminal:
    config = home / ".config" / "shepherd"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(VI)
    terminal = start(script, columns=100, rows=30)
    terminal.wait_for(READY)
    return terminal


def test_escape_in_vi_mode_leaves_the_insert_mode(start: Start, home: Path) -> None:
    terminal = _vi(start, home)
    terminal.send("good morning")
    terminal.wait_for("› good morning")
    terminal.send(ESCAPE)
    terminal.settle()
    terminal.send("0dw")
    terminal.wait_for("› morning")
    terminal.send("A!")
    terminal.wait_for("› morning!")
    terminal.send(ENTER)
    terminal.wait_for("(?m)^› morning!$")
    terminal.wait_for("Good day")


def test_escape_in_vi_mode_stops_what_runs_and_denies(start: Start, home: Path, work: Path) -> None:
    call = 'call: write_file {"path": "new.txt", "content": "x"}'
    terminal = _vi(start, home, f"{call}\n---\ntext: going\ndelay: 600\n")
    terminal.say("hello")
    terminal.wait_asked()
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    assert not (work / "new.txt").exists()
    terminal.say("again")
    terminal.wait_for("going")
    terminal.send(ESCAPE)
    terminal.wait_count("interrupted", 2)
    terminal.send("ib")
    terminal.wait_for("› i?b")


def test_enter_runs_the_marked_command_and_an_unknown_one_comes_back(start: Start) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    terminal.send("/stat")
    terminal.wait_for("tokens and speeds")
    terminal.send(ENTER)
    terminal.wait_for("generations")
    terminal.send("/nosuch")
    terminal.wait_for("› /nosuch")
    terminal.send(ENTER)
    terminal.wait_for("There is no command /nosuch")
    terminal.wait_count("› /nosuch", 2)


def test_a_long_paste_is_one_line_that_is_opened_or_sent_whole(start: Start, work: Path) -> None:
    terminal = start(HELLO)
    terminal.wait_for(READY)
    for text in ("first", "second"):
        terminal.paste("".join(f"{text} {n}\n" for n in range(40)))
        terminal.wait_for(r"paste \d: 40 lines")
    terminal.send("\x7f")  # deletes the second one whole
    terminal.wait_gone("paste 2")
    terminal.send(" and @nosuch/file")
    terminal.wait_for("lines.* and @nosuch/file")
    terminal.send(ENTER)
    terminal.wait_for("first 39")
    terminal.wait_for("no file @nosuch/file: it is sent as text")
    terminal.wait_for("Good day")
    assert "second" not in terminal.text()


def test_text_is_edited_in_the_users_editor(start: Start, home: Path) -> None:
    editor = home / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, edited" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    terminal = start(HELLO, env={"EDITOR": str(editor)})
    terminal.wait_for(READY)
    terminal.send("a draft")
    terminal.wait_for("› a draft")
    terminal.send("\x07")
    terminal.wait_for("› a draft, edited")
    terminal.send(ENTER)
    terminal.wait_for("Good day")


def test_the_first_session_says_how_to_begin_and_later_ones_do_not(start: Start) -> None:
    first = start(HELLO)
    shown = first.wait_for(READY)
    assert "You talk to script" in shown
    assert "You are asked before anything is changed or run" in shown
    first.say("hello")
    first.wait_for("Good day")
    first.send(CTRL_D)
    first.wait_exit()
    assert "You are asked" not in start(HELLO).wait_for(READY)


def test_the_terminals_answers_about_its_colours_are_no_keys(start: Start) -> None:
    terminal = start("text: Yes.\n")
    terminal.wait_for("approve: ask")
    terminal.send("hel\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62;22clo")
    assert "› hello" in terminal.wait_for("hello")
