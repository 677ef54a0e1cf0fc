from pathlib import Path

import pytest

from shepherd.cli.repl.attach import attach_files, mentioned_paths, without_attachments
from shepherd.tools.base import ToolContext
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "a.txt").write_text("alpha\n")
    (path / "b c.txt").write_text("beta\n")
    (path / "sub").mkdir()
    (path / "sub" / "d.txt").write_text("delta\n")
    (path / ".env").write_text("SECRET=1\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    return path


@pytest.fixture
def runner(work: Path, tmp_path: Path) -> ToolRunner:
    context = ToolContext(cwd=work, spill_dir=tmp_path / "spill")
    return ToolRunner(default_registry(), PermissionPolicy(work), DenyingApprover(), context)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see @a.txt", ["a.txt"]),
        ("@a.txt, then (@sub/d.txt).", ["a.txt"]),
        ('is @"b c.txt" good?', ["b c.txt"]),
        ("twice @a.txt @a.txt", ["a.txt"]),
        ("mail me@a.txt or @nobody", []),
        ("@sub", ["sub"]),
        ("@a.txt\n@sub/d.txt!", ["a.txt", "sub/d.txt"]),
        ("@\x00 @~nobody-here/x", []),
    ],
)
def test_what_is_mentioned(work: Path, text: str, paths: list[str]) -> None:
    assert mentioned_paths(text, work) == paths


async def test_files_and_directories_go_along(work: Path, runner: ToolRunner) -> None:
    text = 'compare @a.txt with @"b c.txt" in @sub'
    attached = await attach_files(text, work, runner)
    assert attached.problems == []
    assert attached.paths == ["a.txt", "b c.txt", "sub"]
    assert attached.prompt.startswith(text)
    for content in ("alpha", "beta", "d.txt"):
        assert content in attached.prompt
    assert without_attachments(attached.prompt) == text


@pytest.mark.parametrize("path", [".env", "../outside.txt"])
async def test_the_rules_for_reading_hold(work: Path, runner: ToolRunner, path: str) -> None:
    attached = await attach_files(f"show @{path}", work, runner)
    assert attached.paths == []
    assert "denied" in attached.problems[0]
    assert attached.prompt == f"show @{path}"
