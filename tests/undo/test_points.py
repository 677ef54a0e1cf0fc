"""Points of undo outside of their session: listed, shown, and taken back while it may run."""

import asyncio
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings

from shepherd.errors import UndoError
from shepherd.undo.log import MoveResult
from shepherd.undo.points import Point
from shepherd.undo.recorder import Recorder
from tests.examples import examples
from tests.undo.project import Project, Tree, open_project, view
from tests.undo.test_undo_properties import CALLS, Call, Kill, directory, make


async def points(project: Project) -> list[Point]:
    return await project.keeper.do(Recorder.points)


async def restore(
    base: Path, id: str, *paths: Path, force: bool = False, session: str = "aside"
) -> MoveResult:
    async with open_project(base, session=session) as other:
        return await other.keeper.do(lambda r: r.restore(id, paths, force=force))


async def check_each_point(base: Path, calls: list[Call]) -> None:
    async with open_project(base) as project:
        (project.root / "a").write_text("one\n")
        trees = await make(project, calls)
        listed = [point for point in await points(project) if point.session == "one"]
        assert len(listed) == len(trees) - 1
        for number, (point, before) in enumerate(zip(reversed(listed), trees, strict=False)):
            try:
                moved = await restore(base, point.id, session=f"aside{number}")
            except UndoError:  # a file is now where a directory was, or the other way round
                assert view(project.root) == trees[-1]
                continue
            restored = view(project.root)
            kept = restored.keys() - files(restored).keys()  # a later directory is in its place
            failed = {path for path, _ in moved.failed}
            for path in point.deeds:
                name = str(Path(path).relative_to(project.root))
                assert name in failed | kept or restored.get(name) == before.get(name)
            if files(restored) != files(trees[-1]):
                await restore(base, f"aside{number}-0", session=f"back{number}")
            assert files(view(project.root)) == files(trees[-1])  # directories may stay, empty
        if listed:
            await project.keeper.undo(len(listed))
        assert files(view(project.root)) == files(trees[0])


def files(tree: Tree) -> Tree:
    """The tree without its directories."""
    return {path: entry for path, entry in tree.items() if not stat.S_ISDIR(entry[0])}


@settings(max_examples=examples(80), deadline=None)
@given(CALLS)
def test_each_point_is_taken_back_and_brought_again(calls: list[Call]) -> None:
    with directory() as base:
        asyncio.run(check_each_point(base, calls))


async def test_a_session_that_runs_refuses_to_undo_what_was_restored(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        for text in ("1", "2", "3"):
            await project.call("write_file", path="a.txt", content=text)
        third, second, _ = await points(project)
        await restore(tmp_path, second.id)  # what its session has made is nobody else's
        assert (project.root / "a.txt").read_text() == "1"
        with pytest.raises(UndoError, match="changed since"):
            await project.keeper.undo()
        await project.call("write_file", path="b.txt", content="b")
        await project.keeper.undo()
        assert [p.name for p in project.root.iterdir()] == ["a.txt"]
        await restore(tmp_path, third.id, session="again")
        await project.keeper.undo()  # the file is as it would be after this
        assert (project.root / "a.txt").read_text() == "2"


async def test_what_something_else_changed_is_not_overwritten(tmp_path: Path) -> None:
    async with open_project(tmp_path) as project:
        await project.call("execute_command", command="mkdir d; echo 1 > d/a; echo 1 > b")
        await project.call("execute_command", command="rm -r d b")
        point, _ = await points(project)
        (project.root / "b").write_text("mine")
        with pytest.raises(UndoError, match="b: it was changed since") as refusal:
            await restore(tmp_path, point.id)
        assert "-mine" in refusal.value.details[0]
        await restore(tmp_path, point.id, project.root / "d" / "a")
        assert (project.root / "d" / "a").read_text() == "1\n"
        assert (project.root / "b").read_text() == "mine"
        await restore(tmp_path, point.id, force=True, session="forced")
        assert (project.root / "b").read_text() == "1\n"
        await restore(tmp_path, "forced-0", session="back")
        assert (project.root / "b").read_text() == "mine"
        with pytest.raises(UndoError, match="did not change it"):
            await restore(tmp_path, point.id, project.root / "other")


async def test_the_state_of_points(tmp_path: Path) -> None:
    kill = Kill()
    async with open_project(tmp_path, keeper_class=kill.keeper) as project:
        (project.root / "a").write_text("start\n")
        for name in ("a", "b", "c"):
            await project.call("write_file", path=name, content=name)
        await project.keeper.undo(2)
        await project.keeper.redo()
        with kill.after(1), suppress(UndoError):
            await project.call("write_file", path="a", content="killed")
    async with open_project(tmp_path, session="two") as project:
        assert [(p.id, p.state, [*p.deeds.values()]) for p in await points(project)] == [
            ("one-6", "unfinished", ["changed"]),
            ("one-2", "undone", ["made"]),
            ("one-1", "", ["made"]),
            ("one-0", "", ["changed"]),
        ]
        with pytest.raises(UndoError, match="changed since"):
            await restore(tmp_path, "one-6")
        await restore(tmp_path, "one-6", force=True)
        assert (project.root / "a").read_text() == "a"
        with pytest.raises(UndoError, match="the end of"):
            await restore(tmp_path, "0")
        with pytest.raises(UndoError, match="No point"):
            await restore(tmp_path, "")
