"""A model that asks another one, in the terminal."""

from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, ESCAPE

ASK = """\
call: ask_fast {"question": "Write it down"}
---
text: It was written.
---
call: ask_fast {"question": "And now?"}
---
text: never
"""
FAST = """\
call: write_file {"path": "new.txt", "content": "alpha\\n"}
---
text: I wrote alpha.
---
text: I wait
delay: 3600
"""


def test_another_model_works_under_the_same_rules(start: Start, home: Path, work: Path) -> None:
    (home / "fast.txt").write_text(FAST)
    config = home / ".config" / "shepherd"
    config.mkdir(parents=True)
    table = f'[fast]\ntype = "llamacpp"\nmodel = "script:{home / "fast.txt"}"\n'
    (config / "providers.toml").write_text(table)
    terminal = start(ASK, columns=100, rows=50)
    terminal.wait_for("tokens")
    terminal.say("go")
    terminal.wait_for(r"Allow write_file for fast \(fast\)\?")
    assert "+alpha" in terminal.text()
    terminal.choose("y")
    shown = terminal.wait_for("It was written")
    assert "I wrote alpha" in shown
    assert (work / "new.txt").read_text() == "alpha\n"

    terminal.say("again")
    terminal.wait_for("And now")
    terminal.wait_for("running ask_fast")
    terminal.send(ESCAPE)
    terminal.wait_for("interrupted")

    terminal.say("/tools")
    terminal.wait_for("Ask the model of fast")
    terminal.say("/provider fast")
    terminal.wait_for("Now talking to fast")
    terminal.say("/tools")
    shown = terminal.wait_count("get_environment_variable", 2)
    assert shown.count("Ask the model of fast") == 1
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
