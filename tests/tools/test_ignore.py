"""What `.gitignore` names stays out of glob and grep, as git itself sees it."""

import os
import subprocess
from pathlib import Path

from shepherd.tools.registry import ToolRegistry
from shepherd.tools.search.glob import Glob
from shepherd.tools.search.grep import Grep
from tests.tools.workshop import Workshop, open_workshop

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


def _repository(base: Path) -> Workshop:
    registry = ToolRegistry([Grep(), Glob()])
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


async def test_grep_leaves_ignored_files_out(tmp_path: Path) -> None:
    workshop = _repository(tmp_path)
    found = {
        line.split(":")[0] for line in (await workshop.call("grep", pattern="needle")).split("\n")
    }
    assert found == _git_lists(workshop.root) - {".gitignore", "sub/.gitignore"}


async def test_grep_finds_ignored_files_only_where_it_is_told_to_look(tmp_path: Path) -> None:
    workshop = _repository(tmp_path)
    (workshop.root / "a.log").write_text("alone\n")

    async def found(**words: str) -> str:
        return await workshop.call("grep", **words)

    assert "build/out.py" in await found(pattern="needle", path="build")
    assert await found(pattern="needle", path="cache") == "cache/one/z.py:1: needle"
    assert await found(pattern="needle", path="sub/build") == "sub/build/x.py:1: needle"
    assert await found(pattern="needle", path="sub") == (
        "sub/a.log:1: needle\nsub/deep/y.py:1: needle\nsub/root.only:1: needle"
    )
    assert await found(pattern="needle", glob="sub/*.log") == "sub/a.log:1: needle"
    assert await found(pattern="needle", path="sub", glob="*p/y.*") == "sub/deep/y.py:1: needle"
    assert await found(pattern="alone") == "(no matches)"
    assert await found(pattern="alone", glob="*.log") == "a.log:1: alone"
    assert await found(pattern="alone", path="a.log") == "a.log:1: alone"


async def test_glob_leaves_ignored_files_out_unless_only_they_match(tmp_path: Path) -> None:
    workshop = _repository(tmp_path)
    found = set((await workshop.call("glob", pattern="*.py")).split("\n"))
    assert found == {"a.py", "sub/deep/y.py"}
    listed = set((await workshop.call("glob", pattern="*")).split("\n"))
    assert {path for path in listed if not path.endswith("/")} == _git_lists(workshop.root)
    assert await workshop.call("glob", pattern="build/*.py") == "build/out.py"
    assert await workshop.call("glob", pattern="out.py") == "build/out.py"


async def test_without_a_repository_nothing_is_ignored(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, registry=ToolRegistry([Glob()]))
    (workshop.root / ".gitignore").write_text("*.py\n")
    (workshop.root / "a.py").touch()
    (workshop.root / "b.py").touch()
    assert await workshop.call("glob", pattern="*.py") == "a.py\nb.py"
