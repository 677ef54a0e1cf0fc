"""git in repositories of the user and of others, directories with secrets, everyday lines."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.shell.accesses import line_accesses
from tests.tools.workshop import open_workshop

RULES = ["allow shell git *", "allow shell cd *"]


def git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "-q")
    (root / "a.txt").write_text("a\n")
    git(root, "add", "a.txt")
    git(root, "commit", "-qm", "a")
    return root


def policy_in(root: Path, *rules: str) -> PermissionPolicy:
    return PermissionPolicy(root, user=[parse_rule(rule) for rule in [*RULES, *rules]])


def decided(policy: PermissionPolicy, line: str) -> str:
    return policy.decide("execute_command", line_accesses(line, policy.cwd)).decision.value


def hook(root: Path) -> None:
    (root / ".git/hooks/pre-commit").write_text("#!/bin/sh\ntouch pwned\n")


def hooks_elsewhere(root: Path) -> None:
    git(root, "config", "core.hooksPath", "sub")


def included(root: Path) -> None:
    git(root, "config", "include.path", "../sub/config")


def setting(root: Path) -> None:
    git(root, "config", "diff.external", "touch pwned")


def attributes(root: Path) -> None:
    (root / ".git/info/attributes").write_text("* diff=x\n")


def other_directory(root: Path) -> None:
    (root / ".git").rename(root / "sub/x")
    (root / ".git").write_text("gitdir: sub/x\n")


def worktree_config(root: Path) -> None:
    (root / ".git/config.worktree").write_text("[core]\n\teditor = touch pwned\n")


def pre_commit(root: Path) -> None:
    (root / ".pre-commit-config.yaml").write_text("repos: []\n")


CHANGES = [hook, hooks_elsewhere, included, setting, attributes, other_directory, worktree_config,
           pre_commit]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_git_asks_when_what_it_runs_has_changed(root: Path, change: Callable[[Path], None]) -> None:
    policy = policy_in(root)
    for line in ("git status", "cd sub && git diff", "git --no-pager log"):
        assert decided(policy, line) == "allow"
    change(root)
    for line in ("git status", "git commit -m x", "cd sub && git diff", "env git status"):
        assert decided(policy, line) == "ask"
    assert decided(policy_in(root), "git status") == "allow"


def test_a_change_in_files_that_settings_name_asks(root: Path) -> None:
    (root / "sub/config").write_text("[user]\n\tname = A\n")
    (root / "sub/pre-commit").write_text("#!/bin/sh\n")
    included(root)
    hooks_elsewhere(root)
    for name in ("config", "pre-commit", "post-merge"):
        policy = policy_in(root)
        assert decided(policy, "git status") == "allow"
        (root / "sub" / name).write_text("changed\n")
        assert decided(policy, "git status") == "ask"


def test_what_git_writes_by_itself_changes_nothing(root: Path) -> None:
    git(root.parent, "init", "-q", "--bare", "origin.git")
    git(root, "remote", "add", "origin", "../origin.git")
    policy = policy_in(root)
    git(root, "push", "-qu", "origin", "HEAD:main")
    git(root, "switch", "-qc", "feature", "--track", "origin/main")
    (root / "a.txt").write_text("b\n")
    git(root, "commit", "-qam", "b")
    assert decided(policy, "git status") == "allow"


def test_a_repository_that_appears_is_not_trusted(tmp_path: Path) -> None:
    policy = policy_in(tmp_path)
    assert decided(policy, "git status") == "allow"
    git(tmp_path, "init", "-q")
    assert decided(policy, "git status") == "ask"


def test_too_many_settings_ask(root: Path) -> None:
    for number in range(600):
        (root / f".git/hooks/{number}").touch()
    assert decided(policy_in(root), "git status") == "ask"


async def test_a_change_is_asked_about_once(tmp_path: Path) -> None:
    answers = [Choice.ONCE, Choice.DENY]
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=RULES, answers=answers)
    git(shop.root, "init", "-q")
    for _ in range(2):
        assert (await shop.result("execute_command", command="git status")).ok
    hook(shop.root)
    assert not (await shop.result("execute_command", command="git status")).ok
    causes = [request.cause for request in shop.approver.requests]
    assert causes == [
        f"git runs with the settings of another repository: {shop.root}/.git",
        f"hooks or settings of git have changed since the session began: {shop.root}/.git",
    ]
    assert all(request.always == () for request in shop.approver.requests)


def test_a_rule_may_name_what_a_wildcard_may_not_stand_for(root: Path) -> None:
    named = ("git commit -m y", "git lfs pull", "timeout 60 pytest -q", "git rebase -x make main")
    policy = policy_in(root, *(f"allow shell {command}" for command in named))
    for line in named:
        assert decided(policy, line) == "allow"
    for line in ("git commit -m z", "git lfx pull", "git commit", "timeout 60 pytest -q x"):
        assert decided(policy, line) == "ask"


@pytest.mark.parametrize("line", ["git -C sub status", "git --git-dir=sub status",
                                  "GIT_DIR=sub git status", "env git -C sub status"])  # fmt: skip
def test_another_repository_asks_whatever_is_allowed(root: Path, line: str) -> None:
    assert decided(policy_in(root, f"allow shell {line}"), line) == "ask"


EVERYDAY = """
git diff --stat HEAD~1
git diff sub
git diff -U5 -- a.txt
git diff --cached --name-only
git log -n 5 --graph --all
git log -p --follow a.txt
git log -S needle --since=2.weeks
git show HEAD:a.txt
git blame -L 1,5 a.txt
git ls-files '*.py'
git --no-pager log -3
cd sub && git status
git config --list
ls *.txt
cat sub/*.txt
grep -in needle a.txt sub/b.txt
find . -type f -newer a.txt
sort -u a.txt
diff a.txt sub/b.txt
tree .
du -sh .
"""


HELD = """
git grep -n needle
git -C sub status
grep -rn needle sub
grep -d recurse needle sub
rg needle
find . -exec cat {} ;
find . -name a -delete
find -L . -name a
ls -LR
tree -l
diff . sub
diff -r . sub
cp -r sub other
mv a.txt sub
rm -rf sub
md5sum -c sums
sort -o out a.txt
sort --files0-from=a.txt
uniq a.txt out
tree -o out
date -s 12:00
git diff --no-index a.txt sub/b.txt
git diff . sub
git log --output=out
git add .
git commit -m x
git branch -D old
git config --get user.name
sed -n 1,5p a.txt
env cat a.txt
"""
"""A wide rule lets them run in a sandbox; without one they ask."""


PROGRAMS = """
git ls cat grep rg find cp mv rm wc sort uniq date md5sum sed diff tree du env
"""


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        *((line, "allow") for line in EVERYDAY.strip().split("\n")),
        *((line, "ask") for line in HELD.strip().split("\n")),
    ],
)
def test_everyday_lines_by_a_rule(root: Path, line: str, decision: str) -> None:
    (root / ".gitignore").write_text(".env\nnode_modules/\n")
    (root / ".env").write_text("PASSWORD=x\n")
    (root / "sub/b.txt").write_text("b\n")
    rules = [f"allow shell {program} *" for program in PROGRAMS.split()]
    policy = policy_in(root, *rules)
    verdict = policy.decide("execute_command", line_accesses(line, policy.cwd))
    assert verdict.decision.value == decision, verdict.cause


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("cat .env", "deny"),
        ("head -n 3 -- .env", "deny"),
        ("git show HEAD:.env", "deny"),
        ("grep x .env", "deny"),
        ("grep .env a.txt", "allow"),
        ("echo .env", "allow"),
        ("cat .e*", "deny"),
        ("cat /etc/hosts", "ask"),
        ("ls ..", "ask"),
        ("find / -name x", "ask"),
        ("cat -- link", "ask"),
        ("cat -- -link", "ask"),
        ("sort -t , -k 2 a.txt", "allow"),
        ("sort -k 2 link", "ask"),
        ("od -A x link", "ask"),
        ("sort a.txt -k link", "ask"),
        ("grep -e x link", "ask"),
        ("grep -nex link", "ask"),
        ("grep --regexp x link", "ask"),
        ("du -sh link", "ask"),
        ("cat < link", "ask"),
        ("cat l*", "ask"),
        ("date +%F", "allow"),
    ],
)
def test_what_a_reading_form_reads_needs_the_right_to_read(
    root: Path, line: str, decision: str
) -> None:
    (root / ".env").write_text("PASSWORD=x\n")
    (root / "link").symlink_to("/etc/hosts")
    (root / "-link").symlink_to("/etc/hosts")
    policy = policy_in(root, *(f"allow shell {program} *" for program in
                               ("cat", "head", "grep", "echo", "ls", "find", "sort", "od", "du",
                                "date")))  # fmt: skip
    assert decided(policy, line) == decision


@pytest.mark.parametrize(
    "line",
    [
        "ln -s / l; cat l/etc/hosts",
        "ln -s / l & cat l/etc/hosts",
        "ln -s / l | cat l/etc/hosts",
        "ln -s / l; cd l && cat etc/hosts",
        "make; echo x > l",
        "make; cat < l",
        "cat l/x; (make)",
        "cd -; ls",
        "cd; cat a.txt",
        "cd sub/..; cat a.txt",
        "cd way; cat a.txt",
        "cd ~; cat a.txt",
        "cd sub; make",
        "cd sub && ./run",
        "cat a.txt | make",
        "make < a.txt",
        "make <<< text",
        "make <<'E'\ntext\nE",
    ],
)
def test_what_may_mean_another_file_or_program_asks(root: Path, line: str) -> None:
    (root / "way").symlink_to("/")
    rules = ["allow shell cat *", "allow shell echo *", "allow shell ls *", "allow shell make",
             "allow shell ln -s / l", "allow shell ./run", "allow read /**",
             "allow write **"]  # fmt: skip
    policy = policy_in(root, *rules)
    assert decided(policy, "make") == decided(policy, "cat a.txt") == "allow"
    assert decided(policy, line) == "ask"
