"""Undo, redo, diff, rewind and tree in the terminal."""

from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import ESCAPE

READY = r"approve: all"


def write(text: str) -> str:
    return f'call: write_file {{"path": "a.txt", "content": "{text}\\n"}}\n---\n'


SCRIPT = f"{write('one')}text: First.\n---\n{write('two')}text: Second.\n---\ntext: Third.\n"


def test_files_and_messages_go_back_and_come_again(start: Start, work: Path) -> None:
    path = work / "a.txt"
    terminal = start(SCRIPT, "--approve", "all", columns=100, rows=50)
    terminal.wait_for(READY)
    terminal.say("write one")
    terminal.wait_for("First")
    terminal.say("write two")
    terminal.wait_for("Second")
    terminal.say("/undo")
    terminal.wait_for("Undone: write_file a.txt")
    assert path.read_text() == "one\n"
    terminal.say("/redo")
    terminal.wait_for("Made again: write_file a.txt\nRestored: a.txt")
    assert path.read_text() == "two\n"
    terminal.say("/diff")
    terminal.wait_for("a.txt: new")
    path.write_text("mine\n")
    terminal.say("/undo")
    terminal.wait_for("Nothing was changed: a.txt")
    assert path.read_text() == "mine\n"
    path.write_text("two\n")
    terminal.send(ESCAPE + ESCAPE)
    terminal.wait_for("Back to message number:")
    terminal.say("2")
    terminal.wait_for(r"Take the files back too\?")
    terminal.say("y")
    terminal.wait_for("Back before message 2")
    terminal.wait_count("› write two", 2)
    assert path.read_text() == "one\n"
    terminal.say(", please")
    terminal.wait_for("Third")
    terminal.say("/tree")
    terminal.wait_for("from message 5 on: write two")
    terminal.say("/tree 1 files")
    terminal.wait_for("This is branch 1 now")
    assert path.read_text() == "two\n"


def test_a_resumed_session_can_be_undone(start: Start, work: Path) -> None:
    terminal = start(SCRIPT, "--approve", "all")
    terminal.wait_for(READY)
    terminal.say("write one")
    terminal.wait_for("First")
    terminal.say("/exit")
    assert terminal.wait_exit() == 0
    terminal = start(SCRIPT, "--approve", "all", "--continue")
    terminal.wait_for(READY)
    terminal.say("/undo")
    terminal.wait_for("Undone: write_file a.txt\nRemoved: a.txt")
    assert not (work / "a.txt").exists()
    (work / "a.txt").write_text("one\n")
    terminal.say("/redo")
    terminal.wait_for("Made again: write_file a.txt\nNothing has changed: the files were as they")


def test_old_turns_become_a_summary_and_facts_are_offered(start: Start) -> None:
    long = "word " * 60
    script = f'text: {long}\n---\ntext: Two.\n---\ntext: "Short.\\nFACT: owner = Ada"\n'
    terminal = start(script, "--approve", "all", rows=40)
    terminal.wait_for(READY)
    terminal.say("one")
    terminal.wait_for("word word")
    terminal.say("two")
    terminal.wait_for("Two")
    terminal.say("/compact the words")
    terminal.wait_for("2 messages of")
    terminal.wait_for(r"Remember owner = Ada\?")
    terminal.say("y")
    terminal.wait_for("Remembered: owner")
    terminal.say("/memory facts")
    terminal.wait_for("owner = Ada|owner: Ada")
