"""Everyday lines that a sensible rule allows: safety is not bought by asking for everything."""

from pathlib import Path

from shepherd.tools.permissions.rules import Decision
from tests.attacks.lines import decide, read_lines

FILES = ("src/a.py", "README.md", "run.sh", "Makefile", "tests/test_a.py")


def test_an_everyday_line_runs_unasked(tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    verdicts = decide(tmp_path, read_lines("everyday.txt", separator=";"))
    denied = [(case, v.cause) for case, v in verdicts if v.decision is not Decision.ALLOW]
    assert len(verdicts) > 180
    assert not denied, "\n".join(map(str, denied))
