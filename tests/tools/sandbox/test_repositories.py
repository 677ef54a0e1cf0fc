"""What an approved git line runs, such as a filter, leaves nothing that git starts later."""

import contextlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.repository import programs_of
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.examples import some
from tests.tools.sandbox.boxes import LAYERED, need
from tests.tools.workshop import Workshop, open_workshop

WAYS = ("layer", "no layer", "run again")
SETTING = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch {mark}\\n'"
AGAIN = """
grep -q overlay /proc/self/mountinfo && { echo 'Invalid cross-device link' >&2; exit 1; }
"""
"""In a layer, fail as a program does that can't rename a folder: the second run has no layer."""

ATTACKS = {
    "commondir": f"""
        mkdir evil && cp -r .git/objects .git/refs evil/
        {SETTING} > evil/config; echo ../evil > .git/commondir""",
    "settings of a work tree": f"{SETTING} > .git/worktrees/side/config.worktree",
    "settings of this work tree": f"{SETTING} > .git/config.worktree",
    "commondir of a work tree": f"""
        mkdir evil && cp -r .git/objects .git/refs evil/
        {SETTING} > evil/config; echo ../../../evil > .git/worktrees/side/commondir""",
    "a work tree behind a link": f"""
        mkdir evil && cp -r .git/objects .git/refs evil/
        {SETTING} > evil/config; cp -r .git/worktrees/side fake; echo ../evil > fake/commondir
        rm -rf .git/worktrees/side; ln -s ../../fake .git/worktrees/side""",
    "the plan of a rebase": """
        mkdir -p .git/rebase-merge; cp saved/* .git/rebase-merge/
        echo 'exec touch {mark}' > .git/rebase-merge/git-rebase-todo""",
    "the plan of a rebase, with spaces": """
        mkdir -p .git/rebase-merge; cp saved/* .git/rebase-merge/
        printf '# a\\n\\t x touch {mark}\\n' > .git/rebase-merge/git-rebase-todo""",
    "a rebase behind a link": """
        cp -r saved fake; echo 'exec touch {mark}' > fake/git-rebase-todo
        rm -rf .git/rebase-merge; ln -s ../fake .git/rebase-merge""",
    "attributes": "mkdir -p .git/info; echo '* filter=check' > .git/info/attributes",
    "a hook": """
        mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch {mark}\\n' > .git/hooks/post-checkout
        chmod +x .git/hooks/post-checkout""",
    "settings": "git config core.fsmonitor 'touch {mark}'",
    "settings of a submodule": f"{SETTING} > .git/modules/part/config",
    "a hook of a submodule": """
        mkdir -p .git/modules/part/hooks
        printf '#!/bin/sh\\ntouch {mark}\\n' > .git/modules/part/hooks/post-checkout
        chmod +x .git/modules/part/hooks/post-checkout""",
    "another repository": f"""
        cp -r .git evil; {SETTING} > evil/config
        mv .git old && echo 'gitdir: evil' > .git""",
    "another repository, in place": f"""
        cp -r .git evil; {SETTING} > evil/config; rm -rf .git; mv evil .git""",
}

USERS_LINES = """
git status; git -C side status; git -C part status; git reset -q; git rebase --continue
git rebase --abort; git checkout -q -f HEAD; git -C part checkout -q -f HEAD; git add -A
git commit -qm by-hand --allow-empty; git worktree list; git stash; git gc -q
"""
"""What the user may do afterwards."""


def git(root: Path, *words: str, check: bool = True) -> None:
    words = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", *words)
    subprocess.run(["git", *words], cwd=root, check=check, capture_output=True)


def fill(root: Path, mark: Path) -> None:
    """A repository with a work tree and a submodule, whose filter runs a script of the project."""
    part = root.parent / "part"
    for place in (part, root):
        place.mkdir(exist_ok=True)
        git(place, "init", "-q", "-b", "main", "--template=")
        (place / "text").write_text("one\n")
        git(place, "add", "text")
        git(place, "commit", "-qm", "one")
    (root / ".gitignore").write_text("side\nevil\nfake\nold\nsaved\n*.sh\n")
    (root / ".gitattributes").write_text("*.made filter=made\n")
    git(root, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(part), "part")
    git(root, "add", ".gitignore", ".gitattributes")
    git(root, "commit", "-qm", "two")
    git(root, "worktree", "add", "-q", "side")
    git(root, "config", "extensions.worktreeConfig", "true")
    git(root, "config", "filter.made.clean", "sh ./filter.sh")
    git(root, "config", "filter.made.required", "true")
    git(root, "config", "filter.check.clean", f"touch {mark}")
    git(root, "rebase", "-q", "-x", "false", "HEAD~1", check=False)
    shutil.copytree(root / ".git" / "rebase-merge", root / "saved")
    git(root, "rebase", "--abort")


def workshop(base: Path, box: Box, way: str) -> Workshop:
    """A workshop in which one line is approved, and nothing else."""
    layers = () if way == "no layer" else (base / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    return open_workshop(base, mode=ApproveMode.ASK, answers=[Choice.ONCE], sandbox=sandbox)


CASES = some([*itertools.product(ATTACKS, LAYERED, WAYS)], "repositories", 9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "box", "way"), CASES, ids=[f"{box.name}, {way}: {name}" for name, box, way in CASES]
)
async def test_nothing_runs_afterwards(tmp_path: Path, name: str, box: Box, way: str) -> None:
    need(box)
    attack, mark = ATTACKS[name], tmp_path / "mark"
    shop = workshop(tmp_path, box, way)
    fill(shop.root, mark)
    (shop.root / "text.made").write_text("two\n")
    first = AGAIN if way == "run again" else ""
    (shop.root / "filter.sh").write_text(first + attack.format(mark=mark))

    await shop.call("execute_command", command="git add text.made")
    (shop.root / "filter.sh").write_text("cat\n")
    mark.unlink(missing_ok=True)
    for line in USERS_LINES.replace("\n", ";").split(";"):
        git(shop.root, *line.split()[1:], check=False)

    assert not mark.exists()


OUTER = {
    "commondir": "mkdir evil; cp -r $GIT/objects $GIT/refs evil/; {setting} > evil/config\n"
    "echo $PWD/evil > $GIT/commondir",
    "settings": "{setting} > $GIT/config.worktree",
    "settings of another": "cd $(git rev-parse --git-common-dir)/worktrees/side\n"
    "{setting} > config.worktree",
    "the plan of a rebase": "mkdir $GIT/rebase-merge; cp saved/* $GIT/rebase-merge/\n"
    "echo 'exec touch {mark}' > $GIT/rebase-merge/git-rebase-todo",
}
"""Attacks on a git directory outside of the working directory."""


@pytest.mark.parametrize(
    ("attack", "kind"),
    some(
        [*itertools.product(OUTER, ["behind a link", "work tree", "work tree, no layer"])],
        "outside",
        6,
    ),
)
async def test_nothing_runs_in_a_repository_outside(tmp_path: Path, attack: str, kind: str) -> None:
    box = next(box for box in LAYERED if box.name == "landlock")
    need(box)
    main, mark = tmp_path / "main", tmp_path / "mark"
    main.mkdir()
    fill(main, mark)
    if kind == "behind a link":
        main.rename(tmp_path / "project")
        (tmp_path / "project" / ".git").rename(tmp_path / "elsewhere.git")
        (tmp_path / "project" / ".git").symlink_to(tmp_path / "elsewhere.git")
    else:
        git(main, "worktree", "add", "-q", str(tmp_path / "project"), "HEAD")
        shutil.copytree(main / "saved", tmp_path / "project" / "saved")
        git(main, "checkout", "-q", "--detach", "HEAD")
    shop = workshop(tmp_path, box, "no layer" if "no" in kind else "layer")
    (shop.root / "text.made").write_text("two\n")
    lines = OUTER[attack].format(mark=mark, setting=SETTING.format(mark=mark))
    (shop.root / "filter.sh").write_text(f"GIT=$(git rev-parse --git-dir)\n{lines}\n")

    text = await shop.call("execute_command", command="git add text.made")
    assert "the sandbox refused" in text
    (shop.root / "filter.sh").write_text("cat\n")
    mark.unlink(missing_ok=True)
    for place in (shop.root, tmp_path / "main" / "side", tmp_path / "project" / "side"):
        for line in USERS_LINES.replace("\n", ";").split(";") if place.exists() else ():
            git(place, *line.split()[1:], check=False)

    assert not mark.exists()


LINES = {
    "git commit -qm three --allow-empty": 1,
    "git checkout -q -b topic && git checkout -q main": 1,
    "git checkout -q HEAD~1 && git switch -q main": 1,
    "git stash && git stash pop && git checkout -q one": 1,
    "git rebase -q HEAD~1": 0,  # it is there already
    "git rebase -q other": 1,
    "git cherry-pick other && git reset -q --hard HEAD~1": 1,
    "git merge -q other": 1,
    "git tag one && git branch next && git branch -D next": 1,
    "git submodule update -q": 0,
    "git gc -q": 2,  # it deletes objects
    "git worktree add -q tree": 2,  # its `.git` names a repository
    "git branch -q -u other": 1,  # it changes the settings
}
"""What a user approves, with the number of questions."""


@pytest.mark.parametrize("line", LINES)
async def test_approved_lines_work(tmp_path: Path, line: str) -> None:
    box = next(box for box in LAYERED if box.name == "landlock")
    need(box)
    shop = workshop(tmp_path, box, "layer")
    _fill_with_branches(shop.root)
    if "stash" in line:
        (shop.root / "one").write_text("2\n")
    shop.approver.script(*[Choice.ONCE] * 3)

    text = await shop.call("execute_command", command=line)

    assert "exit code" not in text
    assert shop.request_count == LINES[line]


async def test_a_rebase_that_stops_goes_on(tmp_path: Path) -> None:
    box = next(box for box in LAYERED if box.name == "landlock")
    need(box)
    shop = workshop(tmp_path, box, "layer")
    _fill_with_branches(shop.root)
    (shop.root / "three").write_text("another\n")
    git(shop.root, "add", ".")
    git(shop.root, "commit", "-qm", "another three")
    shop.approver.script(*[Choice.ONCE] * 2)

    await shop.call("execute_command", command="git rebase -q other")
    assert (shop.root / ".git" / "rebase-merge" / "git-rebase-todo").exists()
    (shop.root / "three").write_text("both\n")
    await shop.call("execute_command", command="git add three && git rebase --continue")

    assert not (shop.root / ".git" / "rebase-merge").exists()
    assert shop.request_count == 2


def _fill_with_branches(root: Path) -> None:
    """A repository with a branch `other` that has one commit more, which `main` lacks."""
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Ann")
    git(root, "config", "user.email", "ann@example.org")
    for name in ("one", "two", "three"):
        (root / name).write_text("1\n")
        git(root, "add", name)
        git(root, "commit", "-qm", name)
    git(root, "branch", "other")
    git(root, "reset", "-q", "--hard", "HEAD~1")
    (root / "four").write_text("1\n")
    git(root, "add", "four")
    git(root, "commit", "-qm", "four")


def test_no_depth_hides_a_program(deep_place: Path) -> None:
    git, place = deep_place / "git", deep_place / "git" / "modules"
    place.mkdir(parents=True)
    (git / "commondir").write_text("../evil")
    with contextlib.chdir(place):
        for _ in range(3000):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
    assert git / "commondir" in programs_of(git)


PLANS = {
    "pick 1234 a\n\tp 12 x\n# exec touch x\n\nfixup -C 12 #\nupdate-ref refs/heads/x\nb": set[
        str
    ](),
    "pick 1 a\nexec true\n x touch a b\n": {"exec true", " x touch a b"},
    "picky 1\nExec a\nmerge\texec\n-x\n": {"picky 1", "Exec a", "-x"},
}


@pytest.mark.parametrize("plan", PLANS)
def test_the_steps_of_a_rebase_that_run_programs(tmp_path: Path, plan: str) -> None:
    (tmp_path / "rebase-merge").mkdir()
    path = tmp_path / "rebase-merge" / "git-rebase-todo"
    path.write_text(plan)
    steps = {path: frozenset(PLANS[plan])} if PLANS[plan] else {}
    assert programs_of(tmp_path) == steps
