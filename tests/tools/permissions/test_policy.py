"""Which rule decides."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule, parse_rule

CWD = Path("/w")
READ, WRITE = AccessKind.READ, AccessKind.WRITE
SHELL, ENVIRONMENT = AccessKind.SHELL, AccessKind.ENVIRONMENT


def decide(policy: PermissionPolicy, kind: AccessKind, target: str, tool: str = "some_tool") -> str:
    return policy.decide(tool, [Access(kind, target)]).decision.value


def policy(
    mode: ApproveMode = ApproveMode.ASK,
    user: list[str] | None = None,
    project: list[str] | None = None,
) -> PermissionPolicy:
    return PermissionPolicy(
        CWD,
        mode,
        user=[parse_rule(r) for r in user or []],
        project=[parse_rule(r) for r in project or []],
    )


@pytest.mark.parametrize(
    ("kind", "target", "ask", "edits", "all_", "none"),
    [
        (READ, "/w", "allow", "allow", "allow", "allow"),
        (READ, "/w/a/b", "allow", "allow", "allow", "allow"),
        (READ, "/etc/hosts", "ask", "ask", "allow", "deny"),
        (WRITE, "/w/a", "ask", "allow", "allow", "deny"),
        (WRITE, "/w/.git/hooks/pre-commit", "ask", "ask", "allow", "deny"),
        (WRITE, "/w/.shepherd.toml", "ask", "ask", "allow", "deny"),
        (WRITE, "/etc/hosts", "ask", "ask", "allow", "deny"),
        (SHELL, "ls", "ask", "ask", "allow", "deny"),
        (AccessKind.NETWORK, "https://example.com/", "ask", "ask", "allow", "deny"),
        (ENVIRONMENT, "HOME", "allow", "allow", "allow", "allow"),
        (ENVIRONMENT, "AWS_SECRET_ACCESS_KEY", "ask", "ask", "allow", "deny"),
        (ENVIRONMENT, "github_token", "ask", "ask", "allow", "deny"),
        (READ, "/w/.env", "deny", "deny", "deny", "deny"),
        (WRITE, "/w/.env.local", "deny", "deny", "deny", "deny"),
        (READ, "/w/.env.example", "allow", "allow", "allow", "allow"),
        (READ, "/home/u/.ssh/config", "deny", "deny", "deny", "deny"),
        (READ, "/home/u/.SSH/ID_RSA", "deny", "deny", "deny", "deny"),
        (READ, "/w/deploy/server.pem", "deny", "deny", "deny", "deny"),
        (READ, "/home/u/.aws/credentials", "deny", "deny", "deny", "deny"),
        (READ, "/home/u/.netrc", "deny", "deny", "deny", "deny"),
        (READ, "/home/u/.local/share/keyrings/login.keyring", "deny", "deny", "deny", "deny"),
        (READ, "/proc/1/environ", "deny", "deny", "deny", "deny"),
        (WRITE, "/home/u/.config/shepherd/permissions.toml", "deny", "deny", "deny", "deny"),
    ],
)
def test_defaults_in_every_mode(
    kind: AccessKind, target: str, ask: str, edits: str, all_: str, none: str
) -> None:
    decisions = [decide(policy(mode), kind, target, "write_file") for mode in ApproveMode]
    review_without_a_layer = auto_without_a_sandbox = ask
    reads = kind in (READ, ENVIRONMENT)
    in_plan = ask if reads else "deny"
    assert decisions == [
        *(ask, edits, in_plan, review_without_a_layer, auto_without_a_sandbox, all_, none)
    ]


def test_edits_allows_neither_deleting_nor_redirections() -> None:
    assert decide(policy(ApproveMode.EDITS), WRITE, "/w/a", "edit_file") == "allow"
    assert decide(policy(ApproveMode.EDITS), WRITE, "/w/a", "delete_file") == "ask"
    assert decide(policy(ApproveMode.EDITS), WRITE, "/w/a", "execute_command") == "ask"


def test_the_last_match_wins() -> None:
    rules = ["allow write **", "deny write src/**", "allow write src/gen/**"]
    assert [decide(policy(user=rules), WRITE, f"/w/{p}") for p in ("a", "src/a", "src/gen/a")] == [
        "allow",
        "deny",
        "allow",
    ]


def test_of_several_accesses_the_strictest_decides() -> None:
    accesses = [Access(READ, "/w/a"), Access(WRITE, "/w/a"), Access(READ, "/w/.env")]
    verdict = policy().decide("t", accesses)
    assert (verdict.decision, verdict.cause) == (Decision.DENY, "deny read /**/.env")
    assert policy().decide("t", accesses[:2]).decision is Decision.ASK
    assert policy().decide("t", []).decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        ("allow read /**", "deny"),
        ("allow read {cwd}/**", "deny"),
        ("allow read {cwd}/*", "deny"),
        ("allow * /**/*", "deny"),
        ("allow read .env", "allow"),
        ("allow read {cwd}/.env*", "allow"),
    ],
)
def test_a_secret_is_opened_by_name_only(rule: str, decision: str) -> None:
    assert decide(policy(user=[rule]), READ, "/w/.env") == decision
    assert decide(policy(project=[rule]), READ, "/w/.env") == "deny"


def test_a_project_can_tighten() -> None:
    strict = policy(project=["deny read private/**", "ask read data/**", "deny shell *"])
    assert decide(strict, READ, "/w/private/a") == "deny"
    assert decide(strict, READ, "/w/data/a") == "ask"
    assert decide(strict, SHELL, "ls") == "deny"
    strict.add(Rule("read", "data/**", Decision.ALLOW, lifetime=Lifetime.SESSION))
    assert decide(strict, READ, "/w/data/a") == "ask"


KINDS = st.sampled_from(
    [(READ, "/w/a"), (READ, "/w/.env"), (READ, "/x"), (WRITE, "/w/a"), (WRITE, "/w/id_rsa"),
     (SHELL, "ls -l"), (SHELL, "rm x"), (AccessKind.NETWORK, "http://h/"), (ENVIRONMENT, "A_KEY")]
)  # fmt: skip
RULES = st.builds(
    Rule,
    st.sampled_from(["*", "read", "write", "shell", "network", "environment", "t"]),
    st.sampled_from(["*", "**", "/**", "ls *", "rm *", "a", ".env", "/w/**", "h", "A_*"]),
    st.sampled_from(Decision),
)


MANY = st.lists(RULES, max_size=4)


@given(MANY, MANY, KINDS, st.sampled_from(ApproveMode), st.sampled_from(Claim))
def test_a_project_never_loosens(
    user: list[Rule],
    project: list[Rule],
    access: tuple[AccessKind, str],
    mode: ApproveMode,
    claim: Claim,
) -> None:
    one = [Access(*access, claim)]
    without = PermissionPolicy(CWD, mode, user=user).decide("t", one).decision
    with_it = PermissionPolicy(CWD, mode, user=user, project=project).decide("t", one).decision
    assert with_it.strictness >= without.strictness


@given(st.lists(RULES, max_size=5), KINDS)
def test_what_can_not_be_read_is_never_allowed_by_rule(
    user: list[Rule], access: tuple[AccessKind, str]
) -> None:
    opaque = [Access(*access, Claim.OPAQUE)]
    verdict = PermissionPolicy(CWD, user=user).decide("t", opaque)
    assert verdict.decision is not Decision.ALLOW


def test_a_mention_counts_for_rules_that_deny_only() -> None:
    for target, decision in (("/etc/hosts", "allow"), ("/w/.env", "deny")):
        access = Access(READ, target, Claim.MENTION)
        assert policy().decide("execute_command", [access]).decision.value == decision


def test_rules_of_a_session_end_with_it() -> None:
    own = policy(user=["allow shell make"])
    own.add(Rule("shell", "ls", Decision.ALLOW, lifetime=Lifetime.SESSION))
    own.add(Rule("shell", "cat", Decision.ALLOW, lifetime=Lifetime.ALWAYS))
    assert [decide(own, SHELL, c) for c in ("make", "ls", "cat")] == ["allow"] * 3
    own.end_session()
    assert [decide(own, SHELL, c) for c in ("make", "ls", "cat")] == ["allow", "ask", "allow"]
