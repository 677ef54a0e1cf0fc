"""What the rules decide about a command that a box holds, and about one that none holds."""

from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.access import EXECUTE_COMMAND, Access, AccessKind, Claim
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Rule, parse_rule
from shepherd.tools.shell.accesses import line_accesses

BUILD = Access(AccessKind.SHELL, "make build")
MODES = list(ApproveMode)


def policy(
    mode: ApproveMode,
    *,
    cwd: Path = Path("/w"),
    has_sandbox: bool = True,
    contained: bool = True,
    user: tuple[str, ...] = (),
    project: tuple[str, ...] = (),
) -> PermissionPolicy:
    def rules(texts: tuple[str, ...]) -> list[Rule]:
        return [parse_rule(text) for text in texts]

    made = PermissionPolicy(cwd, mode, user=rules(user), project=rules(project))
    made.has_sandbox = has_sandbox
    return made.contained() if contained else made


def decide(policy: PermissionPolicy, *accesses: Access) -> str:
    return policy.decide(EXECUTE_COMMAND, accesses).decision.value


ANSWERS = {
    # mode: outside of a box, in a box that was not tested, in one that works
    ApproveMode.ASK: ("ask", "ask", "ask"),
    ApproveMode.REVIEW: ("ask", "ask", "ask"),
    ApproveMode.EDITS: ("ask", "ask", "ask"),
    ApproveMode.PLAN: ("deny", "allow", "allow"),
    ApproveMode.AUTO: ("ask", "ask", "allow"),
    ApproveMode.ALL: ("allow", "allow", "allow"),
    ApproveMode.NONE: ("deny", "deny", "deny"),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_box_answers_instead_of_the_user_in_auto_and_plan_alone(mode: ApproveMode) -> None:
    outside = policy(mode, contained=False)
    untested = policy(mode, has_sandbox=False)
    inside = policy(mode)
    assert tuple(decide(p, BUILD) for p in (outside, untested, inside)) == ANSWERS[mode]


@pytest.mark.parametrize("mode", MODES)
def test_the_rules_for_a_box_are_another_policy(mode: ApproveMode) -> None:
    session = policy(mode, contained=False)
    held = session.contained()
    assert held is not session
    assert not session.is_contained
    assert held.rules() == session.rules()


HELD = {AccessKind.SHELL, AccessKind.READ, AccessKind.WRITE, AccessKind.REPOSITORY}
"""What a box holds. All else leaves it: a new kind of access must not be allowed unasked."""

UNASKED = {AccessKind.PLAN, AccessKind.NONE, AccessKind.MEMORY, AccessKind.PROCESS}
"""Allowed by the defaults wherever they run."""


@pytest.mark.parametrize("kind", sorted(set(AccessKind) - HELD - UNASKED))
def test_a_box_allows_nothing_that_leaves_it(kind: AccessKind) -> None:
    target = "AWS_SECRET_ACCESS_KEY" if kind is AccessKind.ENVIRONMENT else "anything"
    access = Access(kind, target)
    assert decide(policy(ApproveMode.AUTO), access) == "ask"
    assert decide(policy(ApproveMode.AUTO), BUILD, access) == "ask"


@pytest.mark.parametrize("mode", [ApproveMode.AUTO, ApproveMode.PLAN])
@pytest.mark.parametrize("decision", ["ask", "deny"])
@pytest.mark.parametrize("source", ["user", "project"])
def test_a_rule_of_the_user_or_the_project_holds_in_a_box_too(
    mode: ApproveMode, decision: str, source: str
) -> None:
    rules = (f"{decision} shell make *",)
    user, project = (rules, ()) if source == "user" else ((), rules)
    held = policy(mode, user=user, project=project)
    assert decide(held, BUILD) == decision
    assert decide(held, Access(AccessKind.SHELL, "ninja")) == "allow"


@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_a_file_that_a_command_may_touch_counts_in_a_box_if_a_rule_names_it(decision: str) -> None:
    named = Access(AccessKind.READ, "/w/plans/a.txt", Claim.MENTION)
    other = Access(AccessKind.READ, "/elsewhere/a.txt", Claim.MENTION)
    for mode, contained in ((ApproveMode.AUTO, True), (ApproveMode.ASK, False)):
        rules = policy(mode, contained=contained, user=(f"{decision} read plans/**",))
        # outside of a box the command line itself is asked about
        expected = decision if contained or decision == "deny" else "allow"
        assert decide(rules, named) == expected
        assert decide(rules, other) == "allow"


@pytest.mark.parametrize(
    ("line", "decision"),
    [("cat a.txt", "ask"), ("git log | head", "ask"), ("cat $X", "deny"), ("", "deny"),
     ("make", "deny"), ("cat a > b", "deny"), ("env cat a", "deny"), ("cat a; make", "deny")],
)  # fmt: skip
def test_without_a_box_only_known_reading_forms_are_asked_about_in_plan(
    line: str, decision: str
) -> None:
    accesses = line_accesses(line, Path("/w"))
    assert decide(policy(ApproveMode.PLAN, contained=False), *accesses) == decision
