"""Everyday lines that a sensible rule allows: safety is not bought by asking for everything."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.errors import ToolError
from shepherd.events import ignore_events
from shepherd.tools.confinement import Command, Confiner, Plan
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, parse_rule
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Report, ignore_refusals
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from shepherd.tools.shell.accesses import line_accesses
from tests.attacks.lines import Case, decide, read_lines
from tests.examples import some

FILES = ("src/a.py", "README.md", "run.sh", "Makefile", "tests/test_a.py")


class NoBox:
    """A box for tests that plan calls and start none."""

    name = "none"
    takes_layers = False

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program]:
        raise ToolError("not in this test")
        yield


def _make_files(base: Path) -> None:
    for name in FILES:
        path = base / name
        path.parent.mkdir(exist_ok=True)
        path.touch()


async def plan(cwd: Path, case: Case, mode: ApproveMode, *rules: str) -> Plan:
    """How a line runs where a box works."""
    user = [parse_rule(rule) for rule in (*(f"allow shell {r}" for r in case.rules), *rules)]
    policy = PermissionPolicy(cwd, mode, user=user)
    finding = Finding(NoBox(), ())
    sandbox = Sandbox(SandboxMode.AUTO, find=lambda: finding)
    confiner = Confiner(policy, sandbox, cwd.parent / "spill")
    accesses = tuple(line_accesses(case.line, cwd))
    return await confiner.plan(Command("execute_command", accesses, cwd, ignore_events))


def test_an_everyday_line_runs_unasked(tmp_path: Path) -> None:
    _make_files(tmp_path)
    verdicts = decide(tmp_path, read_lines("everyday.txt", separator=";"))
    denied = [(case, v.cause) for case, v in verdicts if v.decision is not Decision.ALLOW]
    assert len(verdicts) > 70
    assert not denied, "\n".join(map(str, denied))


@pytest.mark.long
@pytest.mark.parametrize("mode", [ApproveMode.ASK, ApproveMode.NONE])
async def test_a_line_whose_options_are_not_known_runs_in_a_sandbox_only(
    mode: ApproveMode, tmp_path: Path
) -> None:
    _make_files(tmp_path)
    (tmp_path / ".env").write_text("PASSWORD=x")
    every = read_lines("held.txt", separator=";")
    cases = some(every, f"held, {mode}", 60)
    verdicts = decide(tmp_path, cases)
    plans = [await plan(tmp_path, case, mode) for case in cases]

    assert len(every) >= 100
    assert not [case for case, verdict in verdicts if verdict.decision is Decision.ALLOW]
    assert all(p.verdict.decision is Decision.ALLOW and p.is_contained for p in plans)
    assert not any(p.rights.network or p.rights.outside or p.rights.files for p in plans)


@pytest.mark.long
async def test_no_wildcard_opens_the_sandbox(tmp_path: Path) -> None:
    for case in some(read_lines("asks.txt", separator=";;"), "unsandboxed", 30):
        rules = [f"allow unsandboxed {rule}" for rule in case.rules]
        planned = await plan(tmp_path, case, ApproveMode.ASK, *rules)
        asks = planned.verdict.decision is not Decision.ALLOW
        assert asks or (planned.is_contained and not planned.rights.outside), case


@pytest.mark.parametrize("rule", ["deny shell make *", "ask shell make *"])
async def test_a_stricter_rule_holds_in_the_sandbox(rule: str, tmp_path: Path) -> None:
    case = Case("make -f other", ("make *",))
    assert (
        await plan(tmp_path, case, ApproveMode.ASK, rule)
    ).verdict.decision is not Decision.ALLOW
