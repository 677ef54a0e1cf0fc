from pathlib import Path

import pytest

from shepherd.cli.terminal.attachments import (
    attach_files,
    described,
    mentioned_paths,
    without_attachments,
)
from shepherd.tools.files.read import ReadImage
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Rule
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.pictures import jpeg, picture, png


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


@pytest.fixture
def viewer(work: Path, tmp_path: Path) -> ToolRunner:
    context = ToolContext(cwd=work, spill_dir=tmp_path / "spill")
    registry = ToolRegistry([ReadImage()])
    policy = PermissionPolicy(work, user=[Rule("read_file", "{cwd}/shut/**", Decision.DENY)])
    return ToolRunner(registry, policy, DenyingApprover(), context)


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


async def test_files_and_directories_go_along(
    work: Path, runner: ToolRunner, viewer: ToolRunner
) -> None:
    text = 'compare @a.txt with @"b c.txt" in @sub'
    attached = await attach_files(text, work, runner, viewer)
    assert attached.problems == []
    assert attached.paths == ["a.txt", "b c.txt", "sub"]
    assert attached.prompt.startswith(text)
    for content in ("alpha", "beta", "d.txt"):
        assert content in attached.prompt
    assert without_attachments(attached.prompt) == text


@pytest.mark.parametrize("path", [".env", "../outside.txt"])
async def test_the_rules_for_reading_hold(
    work: Path, runner: ToolRunner, viewer: ToolRunner, path: str
) -> None:
    attached = await attach_files(f"show @{path}", work, runner, viewer)
    assert attached.paths == []
    assert "denied" in attached.problems[0]
    assert attached.prompt == f"show @{path}"


async def test_images_go_beside_the_text(
    work: Path, runner: ToolRunner, viewer: ToolRunner
) -> None:
    (work / "photo.png").write_bytes(png(640, 480))
    (work / "b c.JPG").write_bytes(jpeg())
    text = 'compare @photo.png with @"b c.JPG" and @a.txt'
    attached = await attach_files(text, work, runner, viewer)
    assert (attached.problems, attached.paths) == ([], ["a.txt"])
    assert [image.name for image in attached.message.images] == ["photo.png", "b c.JPG"]
    assert attached.message.images[0] == picture("photo.png", 640, 480)
    assert described(picture("a.png", 64, 48)) == "a.png (64×48, 1 kB)"
    assert without_attachments(attached.message.content) == text


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("shut/photo.png", "denied by rule: deny read_file"),
        ("../outside.png", "denied"),
        ("fake.png", "not a PNG, JPEG, GIF or WebP"),
    ],
)
async def test_an_image_is_read_by_the_rules_of_read_file(
    work: Path, runner: ToolRunner, viewer: ToolRunner, path: str, problem: str
) -> None:
    (work / "shut").mkdir()
    for name in ("shut/photo.png", "../outside.png"):
        (work / name).write_bytes(png())
    (work / "fake.png").write_text("text")
    attached = await attach_files(f"show @{path}", work, runner, viewer)
    assert attached.images == []
    assert problem in attached.problems[0]


async def test_only_so_many_images_go_along(
    work: Path, runner: ToolRunner, viewer: ToolRunner
) -> None:
    names = [f"{number}.png" for number in range(21)]
    for name in names:
        (work / name).write_bytes(png())
    attached = await attach_files(" ".join(f"@{name}" for name in names), work, runner, viewer)
    assert "21 images are too many" in attached.problems[0]
