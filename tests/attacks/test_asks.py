"""Lines whose options, or whose inner program, decide what is run: a wide rule allows none."""

from pathlib import Path

import pytest

from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, parse_rule
from shepherd.tools.shell.accesses import line_accesses

_TEXT = Path(__file__).with_name("asks.txt").read_text()
ENTRIES = [line.split("\t") for line in _TEXT.splitlines()[1:]]


@pytest.mark.parametrize(("rules", "line"), ENTRIES, ids=[" in ".join(e[::-1]) for e in ENTRIES])
def test_a_line_that_does_more_than_its_rule_says_asks(
    rules: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("PASSWORD=x")
    policy = PermissionPolicy(
        tmp_path, user=[parse_rule(f"allow shell {rule.strip()}") for rule in rules.split(";;")]
    )
    verdict = policy.decide("execute_command", line_accesses(line.replace("\\n", "\n"), policy.cwd))
    assert verdict.decision is not Decision.ALLOW
