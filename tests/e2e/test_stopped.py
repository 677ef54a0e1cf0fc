"""What a stop, a kill and a cut leave to read."""

import json
import signal
from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import ESCAPE

RUN = "call: execute_command " + json.dumps({"command": "seq 1 30; echo oops >&2; sleep 600"})
LONG = "call: execute_command " + json.dumps({"command": "seq 1 200000"})


def test_what_a_stopped_command_has_printed_stays_and_the_model_reads_it(
    start: Start, work: Path
) -> None:
    terminal = start(f"{RUN}\n---\ntext: End.\n", "--approve", "all")
    terminal.wait_for("approve: all")
    terminal.say("hello")
    terminal.wait_for("(?s)running execute_command.*Esc stops")
    terminal.wait_count("oops", 2)  # in the call and in its output
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")
    shown = terminal.settle()
    assert "(27 earlier lines; Ctrl+O shows all)" in shown
    assert shown.count("oops") == 2
    terminal.send("\x0f")
    terminal.wait_for(r"(?m)│ 1$")
    terminal.send(ESCAPE)
    terminal.say("/save talk.json")
    terminal.wait_for("Saved to")
    assert "30\\n[stderr]\\noops\\n[interrupted by the user]" in (work / "talk.json").read_text()


def test_a_result_is_read_whole_although_the_model_got_a_part(start: Start) -> None:
    terminal = start(f"{LONG}\n---\ntext: End.\n", "--approve", "all")
    terminal.wait_for("approve: all")
    terminal.say("hello")
    terminal.wait_for("End")
    terminal.send("\x0f")
    terminal.wait_for(r"of 1\d{5}")  # a million characters have so many lines
    assert "bytes cut here" not in terminal.visible()


def test_a_killed_answer_is_there_when_the_session_goes_on(start: Start) -> None:
    terminal = start('text: "The first half"\ndelay: 600\n')
    terminal.wait_for("approve: ask")
    terminal.say("hello")
    terminal.wait_for("The first half")
    sessions = Path(terminal.home) / ".local/state/shepherd/sessions"
    terminal.wait_until(lambda: any('"growing"' in f.read_text() for f in sessions.glob("*.jsonl")))
    terminal.process.send_signal(signal.SIGKILL)
    terminal.process.wait()
    resumed = start("text: Back.\n", "--continue")
    shown = resumed.wait_for("The last answer has no end")
    assert shown.index("The first half") < shown.index("The last answer has no end")
