"""What tools changed comes back: undo, redo and their refusals."""

import asyncio
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from shepherd.errors import UndoError
from shepherd.undo.store import UndoLimits
from tests.tools.workshop import until
from tests.undo.project import Project, open_project, view


async def test_each_kind_of_change_is_undone_and_redone(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        root = project.root
        (root / "a.txt").write_bytes(b"one\ntwo\n")
        (root / "a.txt").chmod(0o640)
        (root / "b.bin").write_bytes(bytes(range(256)))
        (root / "link").symlink_to("a.txt")
        start = view(root)
        await project.call("edit_file", path="a.txt", old_string="two", new_string="2")
        await project.call("delete_file", path="b.bin")
        await project.call("delete_file", path="link")
        await project.call("write_file", path="new/deep/c.txt", content="c")
        end = view(root)
        moved = await project.keeper.undo(4)
        assert view(root) == start
        assert sorted(moved.restored) == ["a.txt", "b.bin", "link"]
        assert moved.removed == ["new/deep/c.txt"]
        await project.keeper.redo(4)
        assert view(root) == end
        with pytest.raises(UndoError, match="nothing to redo"):
            await project.keeper.redo()


async def test_a_file_that_the_user_changed_is_not_overwritten(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        path = project.root / "a.txt"
        path.write_text("start\n")
        await project.call("write_file", path="a.txt", content="tool\n")
        await project.call("write_file", path="b.txt", content="b\n")
        path.write_text("mine\n")
        with pytest.raises(UndoError, match=r"a\.txt: it was changed since") as refusal:
            await project.keeper.undo(2)
        assert "-mine" in refusal.value.details[0]
        assert path.read_text() == "mine\n"
        assert (project.root / "b.txt").exists(), "all or nothing"
        await project.keeper.undo(2, force=True)
        assert path.read_text() == "start\n"
        await project.keeper.redo(2)
        assert path.read_text() == "mine\n", "what a forced undo overwrote comes back"


async def test_secrets_and_large_files_are_not_kept(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nhunter2hunter2\n-----END PRIVATE KEY-----\n"
    async with open_project(tmp_path, UndoLimits(file_bytes=1000)) as project:
        root = project.root
        (root / "deploy.txt").write_text(key)
        (root / "tfplan.tfvars").write_text("hunter2hunter2")
        (root / "large.txt").write_text("hunter2hunter2" * 1000)
        for name in ("deploy.txt", "large.txt"):
            await project.call("write_file", path=name, content="x")
        await project.call(
            "execute_command", command="ls | grep plan | xargs -n1 shred -u; touch y"
        )
        moved = await project.keeper.undo(1, force=True)
        assert dict(moved.failed) == {"tfplan.tfvars": "it may hold a secret"}
        assert not (root / "y").exists()
        with pytest.raises(UndoError, match=r"large\.txt: it is larger than"):
            await project.keeper.undo(2, force=True)
        assert (root / "large.txt").read_text() == "x"
        state = tmp_path / "state"
        assert not any(b"hunter2" in path.read_bytes() for path in state.iterdir())
        assert stat.S_IMODE((state / "undo.db").stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700


async def test_commands_are_undone_by_a_scan(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        root = project.root
        (root / "src" / "empty").mkdir(parents=True)
        (root / "src" / "a.py").write_text("a\n")
        (root / "src" / "b.py").write_text("b\n")
        (root / "run.sh").write_text("#!/bin/sh\n")
        (root / "link").symlink_to("src")
        start = view(root)
        command = (
            "mv src/a.py src/c.py; sed -i s/b/B/ src/b.py; chmod +x run.sh; rm link; ln -s run.sh"
            " link; mkdir made; echo z > made/z; rmdir src/empty; rm -r src; echo src > src"
        )
        await project.call("execute_command", command=command)
        end = view(root)
        assert end != start
        assert (await project.call("execute_command", command="cat run.sh | wc -l")).startswith("1")
        await project.keeper.undo()
        assert view(root) == start
        await project.keeper.redo()
        assert view(root) == end


async def test_ignored_files_and_outside_files(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        root, outside = project.root, project.workshop.outside
        await project.call(
            "execute_command", command="git init -q . && echo out/ > .gitignore && mkdir out"
        )
        (outside / "x.txt").write_text("x\n")
        await project.call(
            "execute_command",
            command=f"cp .gitignore $(echo out/o); echo 2 > t; echo y > {outside}/x.txt",
        )
        await project.keeper.undo()
        assert not (root / "t").exists()
        assert (root / "out" / "o").exists(), "git ignores it"
        assert (outside / "x.txt").read_text() == "x\n", "the command names it"


async def test_a_tree_that_is_too_large_is_said(tmp_path: Path) -> None:
    async with open_project(tmp_path, UndoLimits(command_entries=3)) as project:
        for number in range(4):
            (project.root / f"{number}").touch()
        await project.call("write_file", path="0", content="0")
        await project.call("execute_command", command="rm $(echo 1)")
        moved = await project.keeper.undo()
        assert (project.root / "0").read_bytes() == b""
        assert "rm $(echo 1) ran; its changes can't be undone" in moved.notes[0]


async def test_vanished_directories_and_occupied_ones(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        root = project.root
        await project.call("write_file", path="d/a.txt", content="1")
        await project.call("write_file", path="d/a.txt", content="2")
        (root / "d" / "a.txt").unlink()
        (root / "d").rmdir()
        with pytest.raises(UndoError, match="changed since"):
            await project.keeper.undo()
        await project.keeper.undo(force=True)
        assert (root / "d" / "a.txt").read_text() == "1"
        (root / "d" / "mine.txt").touch()
        await project.keeper.undo()
        assert [path.name for path in (root / "d").iterdir()] == ["mine.txt"]


async def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        root, outside = project.root, project.workshop.outside
        (root / "d").mkdir()
        await project.call("write_file", path="d/a.txt", content="1")
        (outside / "a.txt").write_text("outside")
        (root / "d").rename(root / "moved")
        (root / "d").symlink_to(outside)
        with pytest.raises(UndoError, match=r"d/a\.txt"):
            await project.keeper.undo(force=True)
        assert (outside / "a.txt").read_text() == "outside"
        assert [p.name for p in (root / "moved").iterdir()] == ["a.txt"]


async def test_the_changes_survive_the_program(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        await project.call("write_file", path="a.txt", content="1\n")
        await project.call("write_file", path="a.txt", content="2\n")
    async with open_project(tmp_path, session="two") as project:
        with pytest.raises(UndoError, match="nothing to undo"):
            await project.keeper.undo()
    async with open_project(tmp_path) as project:
        assert "+2" in await project.keeper.diff()
        await project.keeper.undo()
        assert (project.root / "a.txt").read_text() == "1\n"
    async with open_project(tmp_path) as project:
        await project.keeper.redo()
        assert (project.root / "a.txt").read_text() == "2\n"
        await project.keeper.undo(2)
        assert await project.keeper.diff() == ""


async def test_it_goes_to_the_files_of_a_message(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        trees = [view(project.root)]
        for number in range(4):
            await project.call("write_file", path="a.txt", content=f"{number}")
            await project.call("write_file", path=f"{number}.txt", content="x")
            trees.append(view(project.root))
        assert sorted(await project.keeper.changed_files(6)) == ["3.txt", "a.txt"]
        await project.keeper.move_to(2)
        assert view(project.root) == trees[1]
        await project.keeper.undo()
        assert view(project.root) == trees[4], "the move can be undone, too"


async def test_a_full_store_drops_the_oldest(tmp_path: Path) -> None:
    limits = UndoLimits(max_bytes=30_000, file_bytes=10_000)
    async with open_project(tmp_path, limits) as project:
        for number in range(10):
            await project.call("write_file", path="a.txt", content=f"{number}" * 9_000)
        await project.keeper.undo()
        assert (project.root / "a.txt").read_text().startswith("8")
        with pytest.raises(UndoError, match="not kept any more"):
            await project.keeper.undo(9)
    assert (tmp_path / "state" / "undo.db").stat().st_size < 200_000


async def test_what_was_written_and_not_kept_can_be_undone(tmp_path: Path) -> None:
    limits = UndoLimits(max_bytes=80_000, file_bytes=40_000)
    async with open_project(tmp_path, limits) as project:
        await project.call("write_file", path="a.txt", content="a" * 20_000)
        await project.keeper.undo()
        assert view(project.root) == {}
        await project.keeper.redo()
        (project.root / "a.txt").write_text("b" * 20_000)
        with pytest.raises(UndoError, match="changed since"):
            await project.keeper.undo()


async def test_losses_are_told_before_they_happen_and_once(tmp_path: Path) -> None:
    limits = UndoLimits(max_bytes=80_000, file_bytes=30_000)
    async with open_project(tmp_path, limits) as project:
        large = project.root / "large.bin"
        large.write_bytes(bytes(30_001))
        (project.root / "key.pem").write_text("hunter2")
        (project.root / "small.txt").write_text("x" * 20_000)
        paths = [str(path) for path in project.root.iterdir()]
        told = await project.keeper.unkept(paths)
        assert sorted(told) == [
            "/undo could not bring back key.pem: it may hold a secret.",
            "/undo could not bring back large.bin: it is larger than 30,000 bytes (undo.file_mib).",
        ]
        assert await project.keeper.unkept(paths) == told  # a question for each call
        await project.call("delete_file", path="large.bin")
        assert project.warnings == []

        large.write_bytes(bytes(40_000))
    async with open_project(tmp_path, limits, session="two") as project:
        await project.call("delete_file", path="large.bin")
        assert "large.bin" in project.warnings.pop()
        for number in range(5):
            assert project.warnings == []
            (project.root / "small.txt").write_text(f"{number}" * 19_000)
            await project.call("delete_file", path="small.txt")
        assert "undo.max_mib" in project.warnings.pop()
        await project.keeper.undo()
        assert (project.root / "small.txt").read_text() == "4" * 19_000


async def test_without_its_store_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    async with open_project(tmp_path) as project:
        assert "Wrote" in await project.call("write_file", path="a.txt", content="1")
        for name, arguments in (("write_file", {"content": "2"}), ("delete_file", {})):
            text = await project.call(name, path="a.txt", **arguments)
            assert text.startswith("Error: what it replaces can't be kept for /undo"), text
            assert "undo.enabled" in text
        assert (project.root / "a.txt").read_text() == "1"
        assert len(project.warnings) == 1

        (tmp_path / "state").unlink()
        await project.call("delete_file", path="a.txt")
        await project.keeper.undo()
        assert (project.root / "a.txt").read_text() == "1"


async def test_a_damaged_row_lets_nothing_be_replaced(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        await project.call("write_file", path="a.txt", content="1")
    with sqlite3.connect(tmp_path / "state" / "undo.db") as connection:
        connection.execute("UPDATE changes SET entries = '[[1]]'")
    connection.close()
    async with open_project(tmp_path) as project:
        assert "Wrote" in await project.call("write_file", path="b.txt", content="2")
        assert "undo.db" in await project.call("write_file", path="a.txt", content="2")
        with pytest.raises(UndoError, match=r"undo\.db"):
            await project.keeper.undo()


async def test_a_cancelled_call_can_be_undone(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        path = project.root / "a.txt"
        path.write_text("mine\n")
        command = "echo half > $(echo a.txt); touch started; sleep 60"
        call = asyncio.create_task(project.call("execute_command", command=command))
        await until((project.root / "started").exists)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await project.call("write_file", path="b.txt", content="b")
        await project.keeper.undo(2)
        assert view(project.root).keys() == {"a.txt"}
        assert path.read_text() == "mine\n"


async def test_two_shepherds_share_the_store(tmp_path: Path) -> None:
    async with (
        open_project(tmp_path, session="one") as first,
        open_project(tmp_path, session="two") as second,
    ):

        async def change(project: Project, name: str) -> None:
            for number in range(10):
                await project.call("write_file", path=name, content=f"{number}")

        await asyncio.gather(change(first, "a.txt"), change(second, "b.txt"))
        await asyncio.gather(first.keeper.undo(10), second.keeper.undo(10))
        assert view(first.root) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_owners_come_back(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        (project.root / "d").mkdir()
        (project.root / "d" / "f").touch()
        (project.root / "d" / "link").symlink_to("f")
        paths = [project.root / name for name in ("d", "d/f", "d/link")]
        for number, path in enumerate(paths):
            os.lchown(path, 1000 + number, 2000)
        await project.call("execute_command", command="rm -r d")
        await project.keeper.undo()
        assert [path.lstat().st_uid for path in paths] == [1000, 1001, 1002]


async def test_any_name_is_kept_and_shown_safely(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        names = [b"\xff\xfe", b"\x1b]0;title\x07", "ä".encode() * 127, b"a\nb"]
        for name in names:
            (project.root / os.fsdecode(name)).write_bytes(b"1")
        (project.root / ("ö" * 127)).symlink_to("nowhere")
        start = view(project.root)
        await project.call("execute_command", command="rm -- *; echo 2 > $(printf 'a\\nb')")
        moved = await project.keeper.undo()
        assert view(project.root) == start
        text = "\n".join(moved.lines("Undone"))
        assert "\x1b" not in text
        assert text.encode()
        assert "a\nb" not in await project.keeper.diff()


async def test_a_directory_that_is_gone_comes_back(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        await project.call("write_file", path="d/a.txt", content="1")
        await project.call("write_file", path="d/a.txt", content="2")
        shutil.rmtree(project.root)
        with pytest.raises(UndoError, match="changed since"):
            await project.keeper.undo()
        await project.keeper.undo(force=True)
        assert (project.root / "d" / "a.txt").read_text() == "1"
