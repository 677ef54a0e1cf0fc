"""Everyday lines that a sensible rule allows: safety is not bought by asking for everything."""

from pathlib import Path

import pytest

from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, parse_rule
from shepherd.tools.shell.accesses import line_accesses

_TEXT = Path(__file__).with_name("everyday.txt").read_text()
ENTRIES = [line.split("\t") for line in _TEXT.splitlines()[1:]]
FILES = ("src/a.py", "README.md", "run.sh", "Makefile", "tests/test_a.py")


@pytest.mark.parametrize(("rules", "line"), ENTRIES, ids=[entry[1] for entry in ENTRIES])
def test_an_everyday_line_runs_unasked(rules: str, line: str, tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    line = line.replace("\\n", "\n").replace("\\\\", "\\")
    policy = PermissionPolicy(
        tmp_path, user=[parse_rule(f"allow shell {rule.strip()}") for rule in rules.split(";")]
    )
    verdict = policy.decide("execute_command", line_accesses(line, policy.cwd))
    assert verdict.decision is Decision.ALLOW, verdict.cause
