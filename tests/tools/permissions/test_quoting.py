"""A rule keeps apart what the shell reads and what is a plain character."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.permissions.approval import propose
from shepherd.tools.permissions.match import command_matches, exact_pattern
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, PermissionStore, Rule, parse_rule
from shepherd.tools.shell.accesses import argv_accesses, line_accesses

PLACE = Path("/nowhere")
READINGS = [
    ("rm -rf d/'*'", "rm -rf d/*"),
    ("rm -rf d/'?'", "rm -rf d/?"),
    ("rm -rf d/'[ab]'", "rm -rf d/[ab]"),
    ("rm -rf d/[a'-'z]", "rm -rf d/[a-z]"),
    ("rm -rf d/['!'a]", "rm -rf d/[!a]"),
    ("rm -rf '~/d'", "rm -rf ~/d"),
    ("rm -rf d/\\*", "rm -rf d/*"),
    ('rm -rf d/"*"', "rm -rf d/*"),
    ("rm -rf d/'*'x*", "rm -rf d/*x'*'"),
    ("rm -rf d/'a b'", "rm -rf d/a b"),
    ("rm -rf d/'<*>'", "rm -rf d/*"),
    ("rm -rf d/'<'*", "rm -rf d/*"),
    ("rm -rf 'x;y'", "rm -rf x;y"),
    ("rm -rf '$X'", "rm -rf $X"),
    ("rm -rf '{a,b}'", "rm -rf {a,b}"),
    ("rm -rf '#x'", "rm -rf #x"),
    ("'A=1' make", "A=1 make"),
]


def decided(policy: PermissionPolicy, line: str) -> str:
    return policy.decide("execute_command", line_accesses(line, policy.cwd)).decision.value


@pytest.mark.parametrize(
    ("one", "other"), [*READINGS, *((live, literal) for literal, live in READINGS)]
)
def test_a_kept_rule_holds_for_one_reading_only(tmp_path: Path, one: str, other: str) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    (tmp_path / "d").mkdir()
    policy = PermissionPolicy(tmp_path, store=store)
    accesses = line_accesses(one, policy.cwd)
    rules = propose(policy, "execute_command", accesses, Lifetime.ALWAYS)
    for rule in rules:
        policy.add(rule)
    later = PermissionPolicy(tmp_path, store=store)
    assert (decided(later, one) == "allow") is bool(rules)
    assert decided(later, other) == "ask"


@pytest.mark.parametrize(
    ("pattern", "line", "allowed"),
    [
        ("rm -rf '*'", "rm -rf -- *", False),  # as an earlier version kept `rm -rf *`
        ("rm 'd/*'", "rm d/*", False),
        ("rm 'd/*'", "rm 'd/*'", True),
        ("cat '~/x'", "cat ~/x", False),
        ("stat ~/x", "stat ~/x", False),  # outside
        ("basename ~/x", "basename ~/x", True),
        ("rm d/*", "rm d/*", False),
        ("rm d/*", "rm d/x", False),
        ("cat d/*", "cat d/*", True),
        ("cat d/*", "cat d/x", True),
        ("rm d/<*>", "rm d/*", True),
        ("rm d/<*>", "rm d/x", False),
        ("rm d/<*>", "rm d/'*'", False),
        ("rm d/<?>", "rm d/*", False),
        ("rm d/[ab]", "rm d/[ab]", True),
        ("rm d/[ab]", "rm d/'[ab]'", False),
        ("git diff *", "git diff -- *", True),
    ],
)
def test_a_rule_by_hand(tmp_path: Path, pattern: str, line: str, *, allowed: bool) -> None:
    policy = PermissionPolicy(tmp_path, user=[parse_rule(f"allow shell {pattern}")])
    assert (decided(policy, line) == "allow") is allowed


def test_rules_that_deny_do_not_care_how_a_word_is_quoted() -> None:
    for pattern in ("rm '*'", "rm *", "rm \\*"):
        rule = Rule("shell", pattern, Decision.DENY)
        assert all(command_matches(rule, line) for line in ("rm '*'", "rm *", "'rm' \"*\" x"))


TEXT = st.text(st.sampled_from("ab*?[]~!^-{}$=<>'\"\\ .#/,|&;"), min_size=1, max_size=3)
PIECE = st.tuples(TEXT, st.sampled_from(["bare", "quoted"]))
WORDS = st.lists(st.lists(PIECE, min_size=1, max_size=3), min_size=1, max_size=3)


def line_of(words: list[list[tuple[str, str]]]) -> str:
    def written(text: str, how: str) -> str:
        return (
            shlex.quote(text) if how == "quoted" else "".join(c for c in text if c not in "'\"\\")
        )

    return " ".join(["prog", *("".join(written(*piece) for piece in word) for word in words)])


def exact_targets(line: str) -> list[str]:
    """The commands of a line that is read in full."""
    accesses = line_accesses(line, PLACE)
    if any(access.claim is Claim.OPAQUE for access in accesses):
        return []
    shell = [a for a in accesses if a.kind is AccessKind.SHELL and a.claim is Claim.EXACT]
    return [access.target for access in shell]


@given(WORDS, WORDS)
def test_a_pattern_meets_its_command_and_no_other(
    one: list[list[tuple[str, str]]], other: list[list[tuple[str, str]]]
) -> None:
    flipped = [[(text, "bare") for text, _ in word] for word in one]
    targets = exact_targets(line_of(one))
    for target in targets:
        rule = Rule("shell", exact_pattern(target), Decision.ALLOW)
        assert command_matches(rule, target)
        for others in (exact_targets(line_of(flipped)), exact_targets(line_of(other))):
            for second in others:
                assert command_matches(rule, second) is (second == target)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_words_without_a_shell_are_met_literally(words: list[str]) -> None:
    (first, *_) = argv_accesses(words, PLACE)
    rule = Rule("shell", exact_pattern(first.target), Decision.ALLOW)
    assert command_matches(rule, first.target)
    assert shlex.split(first.target) == words


@pytest.mark.parametrize("pattern", ["git *", "git push *", "git p* *", "git push ?*", "*"])
def test_a_wildcard_stands_for_words_only_where_it_is_permitted(pattern: str) -> None:
    rule = Rule("shell", pattern, Decision.ALLOW)
    assert command_matches(rule, "git push origin", wildcards=True)
    assert not command_matches(rule, "git push origin")
    assert not command_matches(rule, "git push ./*")
    assert command_matches(Rule("shell", "git push ./<*>", Decision.ALLOW), "git push ./*")
