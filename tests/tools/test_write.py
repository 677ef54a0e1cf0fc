"""write_file and delete_file."""

import errno
import os
import stat
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.files.access import write_atomic
from shepherd.tools.paths import Origin
from shepherd.tools.permissions.approval import Choice
from tests.tools.workshop import Workshop, open_workshop


async def test_a_new_file_and_its_parents(workshop: Workshop) -> None:
    old = os.umask(0o027)
    try:
        text = await workshop.call("write_file", path="a/b/c.txt", content="héllo\n")
    finally:
        os.umask(old)
    assert text == "Wrote 7 bytes to a/b/c.txt"
    file = workshop.root / "a/b/c.txt"
    assert file.read_text() == "héllo\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


async def test_a_replaced_file_keeps_its_mode_and_leaves_nothing_behind(
    workshop: Workshop,
) -> None:
    file = workshop.root / "run.sh"
    file.write_text("old")
    file.chmod(0o751)
    result = await workshop.result("write_file", path="run.sh", content="new\n")
    assert result.display.endswith("-old\n\\ No newline at end of file\n+new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert [p.name for p in workshop.root.iterdir()] == ["run.sh"]


async def test_a_reader_sees_the_old_file_or_the_new_one(workshop: Workshop) -> None:
    file = workshop.root / "a"
    file.write_text("old")
    with file.open() as reader:
        await workshop.call("write_file", path="a", content="new")
        assert reader.read() == "old"
    assert file.read_text() == "new"


async def test_a_link_is_followed_to_its_target(workshop: Workshop) -> None:
    (workshop.root / "real").mkdir()
    (workshop.root / "real/file").write_text("old")
    (workshop.root / "link").symlink_to("real/file")
    await workshop.call("write_file", path="link", content="new")
    assert (workshop.root / "link").is_symlink()
    assert (workshop.root / "real/file").read_text() == "new"


@pytest.mark.parametrize("path", [".", "folder", "new/"])
async def test_a_directory_is_no_file(workshop: Workshop, path: str) -> None:
    (workshop.root / "folder").mkdir()
    text = await workshop.call("write_file", path=path, content="x")
    assert text == f"Error: is a directory: {path}"


async def test_fifos_and_devices_are_not_replaced(workshop: Workshop) -> None:
    os.mkfifo(workshop.root / "fifo")
    text = await workshop.call("write_file", path="fifo", content="x")
    assert text == "Error: not a regular file: fifo"
    assert "not a regular file" in await workshop.call("write_file", path="/dev/null", content="x")
    assert stat.S_ISFIFO((workshop.root / "fifo").lstat().st_mode)


async def test_a_lone_surrogate_is_no_obstacle(workshop: Workshop) -> None:
    assert await workshop.call("write_file", path="a", content="x\ud800y") == "Wrote 5 bytes to a"
    assert (workshop.root / "a").read_text() == "x\ufffdy"


def test_a_directory_swapped_for_a_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dir").symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"."):
        write_atomic(tmp_path / "dir/sub/file", b"x")
    assert not list((tmp_path / "elsewhere").rglob("file"))


async def test_delete(workshop: Workshop) -> None:
    (workshop.root / "a").write_text("x")
    (workshop.root / "folder").mkdir()
    assert await workshop.call("delete_file", path="a") == "Deleted a"
    assert not (workshop.root / "a").exists()
    assert await workshop.call("delete_file", path="a") == "Error: no such file: a"
    assert await workshop.call("delete_file", path="folder") == "Error: is a directory: folder"
    assert await workshop.call("delete_file", path="..") == "Error: is a directory: .."


async def test_of_a_link_the_link_is_deleted(workshop: Workshop) -> None:
    (workshop.outside / "precious").write_text("x")
    (workshop.root / "link").symlink_to(workshop.outside / "precious")
    assert await workshop.call("delete_file", path="link") == "Deleted link"
    assert (workshop.outside / "precious").exists()
    assert not (workshop.root / "link").is_symlink()


async def test_a_file_is_no_directory(workshop: Workshop) -> None:
    (workshop.root / "a.txt").write_text("x")
    result = await workshop.call("write_file", path="a.txt/b", content="y")
    assert result == "Error: not a directory: a.txt/b"


@pytest.mark.parametrize(
    ("old", "note"),
    [
        (b"\0\1\2", "replaces a binary file of 3 bytes"),
        (b"\xff\xfe" + b"\x00\xd8x" * 3, "replaces a binary file of 11 bytes"),
        (None, "replaces a file of 34603008 bytes, too large to compare"),
    ],
)
async def test_the_question_says_what_is_lost_that_is_no_text(
    old: bytes | None, note: str, tmp_path: Path
) -> None:
    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.DENY])
    (workshop.root / "a").write_bytes(b"a" * (33 << 20) if old is None else old)
    await workshop.call("write_file", path="a", content="new\n")
    assert workshop.approver.requests[0].preview.split("\n")[0] == note


async def test_the_question_says_that_a_file_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, _origin: Origin) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.DENY])
    (workshop.root / "a").write_text("old")
    monkeypatch.setattr("shepherd.tools.files.opening.open_regular", refuse)  # root reads all
    await workshop.call("write_file", path="a", content="new\n")
    assert workshop.approver.requests[0].preview.startswith("replaces a file that can't be read\n")
