"""Lines whose options, or whose inner program, decide what is run: a wide rule allows none."""

from pathlib import Path

from shepherd.tools.permissions.rules import Decision
from tests.attacks.lines import decide, read_lines


def test_a_line_that_does_more_than_its_rule_says_asks(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PASSWORD=x")
    verdicts = decide(tmp_path, read_lines("asks.txt", separator=";;"))
    allowed = [case for case, verdict in verdicts if verdict.decision is Decision.ALLOW]
    assert len(verdicts) > 1_000
    assert not allowed, "\n".join(map(str, allowed))
