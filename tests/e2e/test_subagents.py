"""Sub-agents in the terminal."""

from tests.e2e.conftest import Start

READY = r"approve: ask"
SCRIPT = """
call: task {"prompt": "look into a"}
call: task {"prompt": "look into b"}
---
delay: 600
text: never
---
delay: 600
text: never
---
text: Then not.
"""


def test_each_sub_agent_has_a_line_and_esc_stops_them_all(start: Start) -> None:
    terminal = start(SCRIPT, rows=30)
    terminal.wait_for(READY)
    terminal.say("go")
    terminal.wait_for(r"· task \d \(look into a\): starting")
    terminal.wait_for(r"· task \d \(look into b\): starting")
    terminal.send("\x1b")
    terminal.wait_for("interrupted")
    terminal.say("and now?")
    shown = terminal.wait_for("Then not.")
    assert "): starting" not in shown.rpartition("interrupted")[2]
