"""What `.gitignore` names stays out of glob and grep, as git itself sees it."""

import os
import subprocess
from pathlib import Path

import pytest

from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search.glob import Glob
from shepherd.tools.search.grep import Grep
from shepherd.tools.search.walk import Ignored
from tests.tools.workshop import Workshop, open_workshop

ENGINES = [pytest.param(False, id="python"), pytest.param(True, id="ripgrep")]
FILES = [
    *("a.py", "a.log", "keep.log", "build/out.py", "sub/a.log", "sub/build/x.py", "sub/deep/y.py"),
    *("docs/a.txt", "docs/sub/b.txt", "docs/sub/keep.txt", "cache/one/z.py", "x.tmp", "sub/x.tmp"),
    *("#odd", "!bang", "spät.o", "root.only", "sub/root.only"),
]
RULES = """# comment
*.log
!keep.log
build/
/root.only
docs/**/*.txt
!docs/sub/keep.txt
cache/*
\\#odd
\\!bang
*.o\x20\x20
"""


def _repository(base: Path, *, ripgrep: bool = False) -> Workshop:
    registry = ToolRegistry([Grep(use_ripgrep=ripgrep), Glob()])
    workshop = open_workshop(base, registry=registry)
    subprocess.run(["git", "init", "-q", workshop.root], check=True)
    for name in FILES:
        path = workshop.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("needle\n")
    (workshop.root / ".gitignore").write_text(RULES, "utf-8")
    (workshop.root / "sub/.gitignore").write_text("x.tmp\n!a.log\n")
    return workshop


def _git_lists(root: Path) -> set[str]:
    argv = ["git", "-c", "core.quotepath=off", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=root, check=True, capture_output=True).stdout
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def test_the_rules_are_those_of_git(tmp_path: Path) -> None:
    workshop = _repository(tmp_path)
    ignored = Ignored(workshop.root)
    files = {*FILES, ".gitignore", "sub/.gitignore"}
    assert {name for name in files if not ignored.has(name)} == _git_lists(workshop.root)


@pytest.mark.parametrize("ripgrep", ENGINES)
async def test_grep_leaves_ignored_files_out(tmp_path: Path, *, ripgrep: bool) -> None:
    workshop = _repository(tmp_path, ripgrep=ripgrep)
    found = {
        line.split(":")[0] for line in (await workshop.call("grep", pattern="needle")).split("\n")
    }
    assert found == _git_lists(workshop.root) - {".gitignore", "sub/.gitignore"}
    assert "build/out.py" in await workshop.call("grep", pattern="needle", path="build")


async def test_glob_leaves_ignored_files_out_unless_only_they_match(tmp_path: Path) -> None:
    workshop = _repository(tmp_path)
    found = set((await workshop.call("glob", pattern="*.py")).split("\n"))
    assert found == {"a.py", "sub/deep/y.py"}
    assert await workshop.call("glob", pattern="build/*.py") == "build/out.py"
    assert await workshop.call("glob", pattern="out.py") == "build/out.py"


async def test_without_a_repository_nothing_is_ignored(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, registry=ToolRegistry([Glob()]))
    (workshop.root / ".gitignore").write_text("*.py\n")
    (workshop.root / "a.py").touch()
    (workshop.root / "b.py").touch()
    assert await workshop.call("glob", pattern="*.py") == "a.py\nb.py"
    assert not Ignored(workshop.root).is_active
