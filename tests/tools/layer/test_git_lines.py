"""Lines of git work in a layer as others do; what git can't take back is asked about."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.sandbox.boxes.landlock import Landlock
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.examples import some
from tests.tools.sandbox.boxes import need
from tests.tools.workshop import Workshop, open_workshop

Open = Callable[..., Workshop]
ASK, EDITS, AUTO, ALL = ApproveMode.ASK, ApproveMode.EDITS, ApproveMode.AUTO, ApproveMode.ALL
DATES = "export GIT_AUTHOR_DATE=2026-01-01T00:00 GIT_COMMITTER_DATE=2026-01-01T00:00; "
STASH = "echo 5 >> notes; git stash -q"


def git(root: Path, *words: str) -> str:
    """What git prints, with fixed dates."""
    environment = {**os.environ, "GIT_AUTHOR_DATE": "2026-01-01T00:00"}
    environment["GIT_COMMITTER_DATE"] = "2026-01-01T00:00"
    done = subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.strip()


def fill(root: Path) -> None:
    """A repository with two commits on `main` and one more on `other`."""
    git(root, "init", "-q", "-b", "main", "--template=")
    git(root, "config", "user.name", "Ann")
    git(root, "config", "user.email", "ann@example.org")
    (root / "src").mkdir()
    for name in ("notes", "src/a", "src/b"):
        (root / name).write_text(f"{name}\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    git(root, "checkout", "-q", "-b", "other")
    (root / "more").write_text("more\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "other")
    git(root, "checkout", "-q", "main")
    (root / "notes").write_text("notes\n2\n")
    git(root, "commit", "-qam", "two")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    fill(root)
    return root


@pytest.fixture
def shop(tmp_path: Path, repository: Path) -> Open:
    need(Landlock())

    def opened(
        answers: Iterable[Approval | Choice] = (),
        mode: ApproveMode = ASK,
        rules: Iterable[str] = (),
    ) -> Workshop:
        layers = (tmp_path / "layers",)
        found = Finding(Landlock(), ())
        sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: found)
        workshop = open_workshop(tmp_path, mode=mode, rules=rules, answers=answers, sandbox=sandbox)
        shutil.copytree(repository, workshop.root, dirs_exist_ok=True)
        git(workshop.root, "update-index", "--refresh")
        return workshop

    return opened


async def run(workshop: Workshop, command: str) -> str:
    return await workshop.call("execute_command", command=command)


def requests(workshop: Workshop) -> list[ApprovalRequest]:
    return workshop.approver.requests


def state(root: Path) -> list[str]:
    """All that git and the files say."""
    lines = [
        git(root, *words.split())
        for words in (
            *("for-each-ref", "symbolic-ref -q --short HEAD", "status --porcelain", "stash list"),
            *("ls-files -s", "log --all --format=%H%s", "fsck --strict", "reflog --all"),
        )
    ]
    files = sorted(path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return [*lines, *(f"{path.relative_to(root)}: {path.read_text()}" for path in files)]


LINES = (
    "echo 3 >> notes; git add -A && git commit -qm three",
    "git mv src/a c && git commit -qam moved",
    "mkdir x && git mv notes x/",
    "git rm -q src/a; git rm -q --cached src/b",
    "git stash -q; echo 4 > notes; git stash -q; git stash pop -q",
    "git checkout -q -b topic; echo 1 > t; git add t; git commit -qm t; git switch -q main",
    "git merge -q other -m merged",
    "git rebase -q other",
    "git cherry-pick other",
    "git revert --no-edit HEAD",
    "git reset -q --hard HEAD~1",
    "git reset -q HEAD~1 && git restore notes",
    "git tag v1 && git tag -am two v2 && git branch -f other HEAD",
    "git commit -q --amend -m again",
    "git branch -m other another && git branch feature/deep && git pack-refs --all",
    "git clean -qfdx; rm src/a; git checkout -q -- .",
    "git worktree add -q tree 2>/dev/null; git worktree remove --force tree",
    "git bisect start HEAD HEAD~1 >/dev/null; git bisect reset 2>/dev/null",
    "git notes add -m n; git gc -q",
    "printf 'exec false' | git hash-object -w --stdin >/dev/null; git commit -qm x --allow-empty",
)


@pytest.mark.long
@pytest.mark.parametrize("line", some(LINES, "plain", 8))
async def test_a_line_does_what_it_does_without_a_layer(
    shop: Open, tmp_path: Path, line: str
) -> None:
    workshop = shop([Choice.ONCE] * 3)
    plain = tmp_path / "plain"
    shutil.copytree(workshop.root, plain)
    in_plain = DATES + line
    await asyncio.to_thread(subprocess.run, ["bash", "-c", in_plain], cwd=plain, check=True)

    await run(workshop, DATES + line)

    assert state(workshop.root) == state(plain)
    assert all(request.is_effect or "deletes" in request.preview for request in requests(workshop))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "git status",
            "git diff",
            "git diff --stat; git log -1",
            "git stash list",
            "git clean -nd",
        ),
        *("git worktree list; git branch -a; git tag; git remote -v", "touch notes; git diff -w"),
        *("git show HEAD:notes", "git fsck", "git stash && git stash pop", "git reflog -3"),
        *("git config --list; git blame notes", "git notes list", "git update-index --refresh"),
    ],
)
async def test_what_only_reads_is_not_asked_about(shop: Open, line: str) -> None:
    workshop = shop()
    os.utime(workshop.root / "notes")
    git(workshop.root, "stash", "list")
    before = (workshop.root / ".git/index").read_bytes()
    await run(workshop, line)
    assert requests(workshop) == []
    assert (workshop.root / ".git/index").read_bytes() == before


async def test_the_question_tells_what_git_did(shop: Open) -> None:
    workshop = shop([Choice.ALWAYS])
    await run(workshop, "echo 3 >> notes; git add -A; git commit -qm three; git tag v1")
    [request] = requests(workshop)
    assert "\nchanged 1 file:\ngit: 1 commit on main, made tag v1, the index\n" in request.preview
    rules = ["allow effect write .git/**", "allow effect write notes"]
    assert [str(rule) for rule in request.always] == rules
    assert "objects" not in request.preview + request.detail
    assert request.parts[0].title.startswith("git: ")
    await run(workshop, "git commit -qm four --allow-empty && git switch -qc topic")
    assert len(requests(workshop)) == 1
    assert git(workshop.root, "log", "-1", "--format=%s", "topic") == "four"


ENEMIES = (
    "git config core.fsmonitor ./evil",
    "printf '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "echo '* filter=x' > .git/info/attributes",
    "echo ../evil > .git/commondir",
    "mkdir -p .git/rebase-merge; echo 'exec ./evil' > .git/rebase-merge/git-rebase-todo",
    "rm -rf .git; git init -q; git config core.fsmonitor ./evil",
    "mv .git git; echo 'gitdir: git' > .git",
    "mv .git git; ln -s git .git",
    "mv .git git; rm git/config; cp -r git .git",
    "mkdir -p .git/worktrees/x; echo /x > .git/worktrees/x/commondir",
    "rm -rf .git/refs; ln -s ../src .git/refs",
    "mkdir -p .git/modules/m/hooks; echo 1 > .git/modules/m/hooks/post-checkout",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "line"),
    [*product([AUTO], ENEMIES), *some([*product([ASK, EDITS], ENEMIES)], "enemies", 5)],
)
async def test_no_line_changes_what_git_runs_unasked(
    shop: Open, mode: ApproveMode, line: str
) -> None:
    workshop = shop(mode=mode, rules=["allow effect any **", "allow effect any .git/**"])
    places = ("config", "hooks", "info/attributes", "commondir", "worktrees", "modules")
    before = [_content(workshop.root / ".git" / place) for place in places]
    (workshop.root / "run.sh").write_text(f"mkdir -p .git/hooks .git/info\n{line}\n")
    await run(workshop, "sh run.sh")
    assert requests(workshop)
    assert [_content(workshop.root / ".git" / place) for place in places] == before
    assert not (workshop.root / ".git").is_symlink()
    assert "exec" not in git(workshop.root, "status")
    git(workshop.root, "fsck")


def _content(path: Path) -> object:
    if path.is_dir():
        return {str(p.relative_to(path)): _content(p) for p in path.rglob("*") if p.is_file()}
    return path.read_bytes() if path.exists() else {}


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("git stash drop -q", "forgets 1 commit of .git/logs/refs/stash, .git/refs/stash"),
        ("git update-ref -d refs/heads/only", "forgets 1 commit"),
        ("git tag -d kept", "forgets 1 commit of .git/refs/tags/kept"),
        ("git reflog expire --expire=now --all && git branch -D other", "forgets"),
        ("rm -rf .git/objects/pack", "deletes 2 objects of git"),
        ("git gc -q --prune=now", "objects of git"),
        ("rm -rf .git/logs .git/refs/heads", "forgets"),
    ],
)
@pytest.mark.parametrize("mode", [ASK, AUTO])
async def test_what_can_not_come_back_is_asked_about_by_itself(
    shop: Open, mode: ApproveMode, line: str, loss: str
) -> None:
    workshop = shop(mode=mode, rules=["allow effect any **", "allow write .git/**"])
    root = workshop.root
    (root / "notes").write_text("stashed\n")
    git(root, "stash", "-q")
    tree = git(root, "write-tree")
    git(root, "update-ref", "refs/heads/only", git(root, "commit-tree", "-m", "x", tree))
    git(root, "update-ref", "-d", "refs/heads/only") if "only" not in line else None
    git(root, "tag", "kept", git(root, "commit-tree", "-m", "tagged", tree))
    if "pack" in line:
        git(root, "repack", "-aqd")
        for name in root.glob(".git/objects/pack/*.rev"):
            name.unlink()
    before = state(root)

    result = await run(workshop, line)

    [request] = requests(workshop)
    assert loss in request.preview
    assert (request.session, request.always) == ((), ())
    assert "not kept" in result
    assert state(root) == before


async def test_what_the_session_made_itself_is_no_loss(shop: Open) -> None:
    workshop = shop([Choice.SESSION])
    await run(workshop, STASH)
    assert len(requests(workshop)) == 1
    await run(workshop, "git stash pop -q")
    await run(workshop, "git branch topic; git branch -q -d topic; git tag x")
    await run(workshop, "git tag -d x")
    assert len(requests(workshop)) == 1
    assert (workshop.root / "notes").read_text().endswith("5\n")
    assert git(workshop.root, "tag", "-l") == git(workshop.root, "stash", "list") == ""


class Meanwhile:
    """A user who works with git while the question waits, and then says yes."""

    def __init__(self, root: Path, words: list[str]) -> None:
        self._root, self._words = root, words
        self.state: list[str] = []

    async def ask(self, request: ApprovalRequest) -> Approval:
        git(self._root, *self._words)
        self.state = state(self._root)
        return Approval(Choice.ONCE)


@pytest.mark.parametrize(
    "words",
    [
        ["commit", "-qm", "user", "--allow-empty"],
        ["reset", "-q", "--hard", "HEAD~1"],
        ["rm", "-q", "--cached", "notes"],
        ["branch", "-f", "side", "other"],
        ["pack-refs", "--all"],
    ],
)
async def test_what_the_users_git_does_meanwhile_is_not_overwritten(
    shop: Open, words: list[str]
) -> None:
    workshop = shop()
    git(workshop.root, "branch", "side")
    user = workshop.runner.approver = Meanwhile(workshop.root, words)
    line = "git branch -f side HEAD~1; echo 3 > src/a; git commit -qam three"
    assert "no change was kept" in await run(workshop, line)
    assert state(workshop.root) == user.state


async def test_what_the_users_git_only_looks_at_is_no_conflict(shop: Open) -> None:
    workshop = shop()
    os.utime(workshop.root / "notes", (1, 1))
    workshop.runner.approver = Meanwhile(workshop.root, ["status"])
    before = (workshop.root / ".git/index").read_bytes()
    assert await run(workshop, "echo 3 > src/a; git commit -qam three") == "(no output)"
    assert (workshop.root / ".git/index").read_bytes() != before
    assert git(workshop.root, "status", "--porcelain") == ""
    assert git(workshop.root, "log", "-1", "--format=%s") == "three"


@pytest.mark.parametrize("lock", ["index.lock", "refs/heads/main.lock"])
async def test_nothing_is_changed_while_git_is_at_work(shop: Open, lock: str) -> None:
    workshop = shop([Choice.ONCE] * 2)
    before = state(workshop.root)

    class Busy(Meanwhile):
        async def ask(self, request: ApprovalRequest) -> Approval:
            (workshop.root / ".git" / lock).write_text("")
            return Approval(Choice.ONCE)

    yes, workshop.runner.approver = workshop.approver, Busy(workshop.root, [])
    line = "echo 3 > src/a; git commit -qam three"
    assert f"{lock} (git is at work)" in await run(workshop, line)
    (workshop.root / ".git" / lock).unlink()
    assert state(workshop.root) == before
    assert [*(workshop.root / ".git").rglob("*.lock")] == []
    workshop.runner.approver = yes
    await run(workshop, f"{line}; touch .git/index.lock .git/refs/heads/x.lock")
    assert "three" in git(workshop.root, "log", "-1", "--format=%s")
    assert [*(workshop.root / ".git").rglob("*.lock")] == []


async def test_files_that_programs_run_may_not_change_unseen(shop: Open) -> None:
    workshop = shop(mode=AUTO, rules=["allow effect any **"])
    root = workshop.root
    for path in (".vscode/tasks.json", ".venv/bin/python", "sub/.git/hooks/pre-commit"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("old\n")
    (root / "real").mkdir()
    (root / ".husky").symlink_to("real")
    script = """
        echo new > .vscode/other.json; echo new > .vscode/tasks.json; echo new > .venv/bin/python
        echo new > .venv/x; echo new > sub/.git/hooks/pre-commit; rm .husky; mkdir .husky
        echo new > real/pre-commit; mv .vscode .vs2; echo new > fine"""
    (root / "run.sh").write_text(script)
    await run(workshop, "sh run.sh; true")
    assert {
        str(Path(request.accesses[0].target).relative_to(root)) for request in requests(workshop)
    } == {".vscode", ".venv", "sub/.git", ".husky"}
    assert (root / ".vscode/tasks.json").read_text() == "old\n"
    assert not (root / ".vscode/other.json").exists()
    assert (root / ".venv/bin/python").read_text() == "old\n"
    assert not (root / "real/pre-commit").exists()
    assert (root / ".husky").is_symlink()
    assert (root / "fine").read_text() == "new\n"


async def test_a_yes_to_a_folder_that_programs_run_holds_for_what_is_in_it(shop: Open) -> None:
    workshop = shop([Choice.SESSION])
    await run(workshop, "mkdir -p .venv/bin && echo 1 > .venv/bin/a")
    await run(workshop, "echo 2 > .venv/bin/b; rm .venv/bin/a")
    [request] = requests(workshop)
    assert [str(rule) for rule in request.session] == ["allow write {cwd}/.venv/**"]
    assert [path.name for path in (workshop.root / ".venv/bin").iterdir()] == ["b"]


async def test_a_move_is_a_write_unless_a_rule_is_about_deletions(shop: Open) -> None:
    workshop = shop(rules=["allow effect write **"])
    await run(workshop, "mv src/a src/c; git mv src/b b")
    assert requests(workshop) == []
    assert not (workshop.root / "src/a").exists()
    workshop.runner.policy.add(parse_rule("ask effect delete notes"))
    await run(workshop, "mv notes more")
    assert len(requests(workshop)) == 1
    assert (workshop.root / "notes").exists()


async def test_what_the_session_made_is_deleted_unasked_if_nobody_changed_it(shop: Open) -> None:
    workshop = shop(rules=["allow effect write **"])
    root = workshop.root
    await run(workshop, "mkdir -p new/deep; echo 1 > new/deep/a; echo 2 > new/b; cp notes copy")
    await run(workshop, "echo 3 >> new/b; mv src/a moved")
    await run(workshop, "rm -r new/deep; rm copy")
    assert requests(workshop) == []
    assert not (root / "new/deep").exists()
    (root / "new/b").write_text("the user's\n")
    for line in ("rm -r new", "rm moved", "rm notes"):
        await run(workshop, line)
    assert len(requests(workshop)) == 3
    assert (root / "new/b").read_text() == "the user's\n"
    assert (root / "moved").exists()
