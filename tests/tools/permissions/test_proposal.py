"""What "always" would store."""

import shlex
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import propose
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, parse_rule
from shepherd.tools.shell.accesses import argv_accesses, line_accesses


def texts(
    policy: PermissionPolicy,
    tool: str,
    accesses: list[Access],
    lifetime: Lifetime = Lifetime.ALWAYS,
) -> list[str]:
    return [str(rule) for rule in propose(policy, tool, accesses, lifetime)]


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("git status -s", ["git status *"]),
        ("git log | wc -l", ["git log *", "wc *"]),
        ("git push origin", ["git push origin"]),
        ("git -C x log", []),
        ("git --no-pager log", ["git --no-pager log"]),
        ("LC_ALL=C sort a", ["LC_ALL=C sort a"]),
        ("cat a b", ["cat *"]),
        ("cd src && make", []),
        ("cargo test --all", ["cargo test --all"]),
        ("git fetch origin", ["git fetch origin"]),
        ("docker ps -a", ["docker ps -a"]),
        ("git log --output=x", ["git log --output=x"]),
        ("git commit -m =x --only a", ["git commit -m =x --only a"]),
        ("npm run build", ["npm run build"]),
        ("ls -la src", ["ls *"]),
        ("rm -rf build", ["rm -rf build"]),
        ("rm '*' ", ["rm '*'"]),
        ("curl http://x", ["curl http://x"]),
        ("sudo apt update", ["sudo apt update"]),
        ("python3 -c 'print(1)'", ["python3 -c 'print(1)'"]),
        ("python3 script.py", ["python3 script.py"]),
        ("bash -c 'ls'", ["bash -c ls"]),
        ("make", ["make"]),
        ("cat x | bash", []),
        ("python3 -", ["python3 -"]),
        ("ls | python3 -", []),
        ("bash <<'E'\nls\nE", []),
        ("ls | xargs", []),
        ("echo $X", []),
        ("ls $(pwd)", []),
        ("for f in a; do ls; done", []),
    ],
)
def test_commands(tmp_path: Path, line: str, rules: list[str]) -> None:
    policy = PermissionPolicy(tmp_path)
    accesses = line_accesses(line, policy.cwd)
    expected = [f"allow shell {rule}" for rule in rules]
    assert texts(policy, "execute_command", accesses) == expected
    for rule in propose(policy, "execute_command", accesses, Lifetime.ALWAYS):
        assert (rule.scope, rule.lifetime) == (str(policy.cwd), Lifetime.ALWAYS)


@pytest.mark.parametrize(
    ("answered", "then"),
    [
        ("git fetch", "git fetch --upload-pack='touch pwned' ."),
        ("git diff", "git diff --output=/root/.bashrc"),
        ("git log", "git log -p --outpu=/root/.bashrc"),
        ("git show", "git show --output /root/.bashrc"),
        ("git diff", "git diff --ext-diff"),
        ("git diff", "git -c diff.external=evil diff"),
        ("git status", "GIT_EXTERNAL_DIFF=evil git status"),
        ("go test", "go test -exec /tmp/evil"),
        ("go vet", "go vet -vettool=/tmp/evil"),
        ("cargo build", "cargo build --config build.rustc-wrapper=/tmp/evil"),
        ("npm test", "npm test --script-shell=/tmp/evil"),
        ("pip list", "pip list --log /root/.bashrc"),
        ("apt list", "apt list -o APT::Update::Pre-Invoke::=evil"),
        ("kubectl get pods", "kubectl get pods --kubeconfig=/tmp/evil"),
        ("git branch", "git branch -D main"),
        ("git stash", "git stash drop"),
    ],
)
def test_always_opens_no_way_to_other_programs_and_files(
    tmp_path: Path, answered: str, then: str
) -> None:
    policy = PermissionPolicy(tmp_path)
    accesses = line_accesses(answered, policy.cwd)
    for rule in propose(policy, "execute_command", accesses, Lifetime.ALWAYS):
        policy.add(rule)
    assert policy.decide("execute_command", accesses).decision is Decision.ALLOW
    later = policy.decide("execute_command", line_accesses(then, policy.cwd))
    assert later.decision is Decision.ASK


def test_files(tmp_path: Path) -> None:
    policy = PermissionPolicy(tmp_path)
    inside = str(policy.cwd / "src/a[1].py")
    write = [Access(AccessKind.WRITE, inside)]
    assert texts(policy, "edit_file", write) == ["allow edit_file {cwd}/src/a[[]1].py"]
    assert texts(policy, "edit_file", write, Lifetime.SESSION) == ["allow edit_file {cwd}/**"]
    assert texts(policy, "delete_file", write, Lifetime.SESSION) == [
        "allow delete_file {cwd}/src/a[[]1].py"
    ]
    outside = [Access(AccessKind.WRITE, "/etc/x")]
    assert texts(policy, "write_file", outside, Lifetime.SESSION) == ["allow write_file /etc/x"]
    assert texts(policy, "read_file", [Access(AccessKind.READ, "/etc/hosts")]) == [
        "allow read /etc/hosts"
    ]
    assert texts(policy, "list_directory", [Access(AccessKind.READ, "/etc")]) == [
        "allow read /etc/**"
    ]


def test_network_and_environment(tmp_path: Path) -> None:
    policy = PermissionPolicy(tmp_path)
    url = [Access(AccessKind.NETWORK, "https://example.com:8443/a?b=c")]
    assert texts(policy, "http_get", url) == ["allow http_get example.com:8443"]
    name = [Access(AccessKind.ENVIRONMENT, "MY_KEY")]
    assert texts(policy, "get_environment_variable", name) == ["allow environment MY_KEY"]


def test_nothing_is_offered_that_would_not_help(tmp_path: Path) -> None:
    policy = PermissionPolicy(tmp_path, project=[parse_rule("ask shell *")])
    assert (
        propose(policy, "execute_command", line_accesses("ls", policy.cwd), Lifetime.ALWAYS) == ()
    )


PROGRAMS = st.sampled_from(["git", "ls", "rm", "bash", "python3", "sudo", "x", "curl", "cargo"])
WORDS = st.sampled_from(["status", "-c", "push", "a b", "*", "test", "'", "-rf", "http://h", "~"])


@example("git", [], "git", ["-c"])
@given(PROGRAMS, st.lists(WORDS, max_size=3), PROGRAMS, st.lists(WORDS, max_size=3))
def test_what_is_stored_allows_this_call_and_no_other_program(
    program: str, words: list[str], other: str, other_words: list[str]
) -> None:
    policy = PermissionPolicy(Path("/w"))
    accesses = argv_accesses([program, *words], policy.cwd)
    rules = propose(policy, "execute_command", accesses, Lifetime.SESSION)
    for rule in rules:
        policy.add(rule)
    if rules:
        assert policy.decide("execute_command", accesses).decision is Decision.ALLOW
    different = [other, *other_words]
    allowed = policy.decide("execute_command", argv_accesses(different, policy.cwd)).decision
    if allowed is Decision.ALLOW and different != [program, *words]:
        assert rules
        assert rules[0].pattern.endswith(" *")
        assert different[0] == program
        assert program == "ls" or different[1] == words[0]
        assert shlex.join([program, *words]) not in ("rm", "bash", "sudo")
