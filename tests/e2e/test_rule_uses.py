"""How often a rule was used, and when last."""

from pathlib import Path

from tests.cli.program import Program
from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D


def _write(text: str) -> str:
    return f'call: write_file {{"path": "a.txt", "content": "{text}\\n"}}\n---\n'


def test_the_terminal_and_the_shell_tell_how_often_a_rule_was_used(
    start: Start, home: Path, work: Path
) -> None:
    config = home / ".config/shepherd"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        "".join(
            f'[[permissions.rules]]\ntool = "write"\npattern = "{name}"\ndecision = "{decision}"\n'
            for name, decision in (("a.txt", "allow"), ("b.txt", "deny"))
        )
    )
    terminal = start(f"{_write('one')}{_write('two')}text: Done.\n", columns=120, rows=40)
    terminal.wait_for("approve: ask")
    terminal.say("/permissions")
    terminal.wait_for(r"allow write a.txt \(everywhere, settings, never used\)")
    terminal.say("write it")
    terminal.wait_for("Done")
    terminal.say("/permissions")
    terminal.wait_for(r"allow write a.txt \(everywhere, settings, used 2 times, last on 20")
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    listed = Program(home, work).run("permissions", "list").stdout
    assert "allow write a.txt (everywhere, settings, used 2 times, last on 20" in listed
    assert "deny write b.txt (everywhere, settings, never used)" in listed
