"""Any sequence of changes can be undone and redone, also by a program that is killed."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import UndoError
from shepherd.undo.files import KeptFiles
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import Change, FileState, UndoStore
from tests.examples import examples
from tests.undo.project import Project, Tree, open_project, view

Call = tuple[str, dict[str, str]]
NAMES = st.sampled_from(["a", "b", "d/a", "d/e/b"])
TEXTS = st.sampled_from(["", "one\n", "two\n", "ä" * 50])


def shell(text: str) -> Call:
    return "execute_command", {"command": text}


def write(name: str, text: str) -> Call:
    return "write_file", {"path": name, "content": text}


def edit(name: str, text: str) -> Call:
    return "edit_file", {"path": name, "old_string": "one", "new_string": text}


def delete(name: str) -> Call:
    return "delete_file", {"path": name}


def move(source: str, target: str) -> Call:
    return shell(f"mv {source} {target}")


FILE_CALLS = (
    st.builds(write, NAMES, TEXTS) | st.builds(edit, NAMES, TEXTS) | st.builds(delete, NAMES)
)
COMMANDS = st.builds(move, NAMES, NAMES) | st.sampled_from(
    [shell("rm -r d"), shell("ln -s b l$(true)"), shell("chmod 700 a"), shell("rm -r d; : > d")]
)
CALLS = st.lists(FILE_CALLS | COMMANDS, min_size=1, max_size=6)


@contextmanager
def directory() -> Generator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name).resolve()


async def make(project: Project, calls: list[Call]) -> list[Tree]:
    """Make the calls; returns the tree after each change."""
    trees = [view(project.root)]
    for name, arguments in calls:
        await project.call(name, **arguments)
        if view(project.root) != trees[-1]:
            trees.append(view(project.root))
    return trees


async def check_each_state(base: Path, calls: list[Call], count: int) -> None:
    async with open_project(base) as project:
        (project.root / "a").write_text("one\n")
        trees = await make(project, calls)
        number = min(count, len(trees) - 1)
        if not number:
            return
        await project.keeper.undo(number)
        assert view(project.root) == trees[-1 - number]
        await project.keeper.redo(number)
        assert view(project.root) == trees[-1]
        for tree in reversed(trees[:-1]):
            await project.keeper.undo()
            assert view(project.root) == tree


@settings(max_examples=examples(80), deadline=None)
@given(CALLS, st.integers(1, 6))
def test_undo_gives_the_tree_as_it_was(calls: list[Call], count: int) -> None:
    with directory() as base:
        asyncio.run(check_each_state(base, calls, count))


class KilledError(BaseException):
    """The program ends here."""


class Kill:
    """Ends the program before its step number `steps`: a file, or a line of the log."""

    def __init__(self) -> None:
        self._remaining: int | None = None

    @contextmanager
    def after(self, steps: int) -> Generator[None]:
        """Count the steps from now on, and survive the end."""
        self._remaining = steps
        try:
            with suppress(KilledError):
                yield
        finally:
            self._remaining = None

    def step(self) -> None:
        if self._remaining is None:
            return
        self._remaining -= 1
        if self._remaining < 0:
            raise KilledError

    def keeper(self, *arguments: Any) -> UndoKeeper:
        """A keeper that this ends."""
        return MortalKeeper(self, *arguments)


class MortalFiles(KeptFiles):
    def __init__(self, kill: Kill, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kill = kill

    def restore(self, path: str, state: FileState, *, durable: bool = True) -> str:
        self._kill.step()
        return super().restore(path, state, durable=durable)


class MortalStore(UndoStore):
    def __init__(self, kill: Kill, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kill = kill

    def write(self, session: str, change: Change) -> None:
        self._kill.step()
        super().write(session, change)


class MortalKeeper(UndoKeeper):
    def __init__(self, kill: Kill, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kill = kill

    def _open_store(self) -> UndoStore:
        return MortalStore(self._kill, self._path, self._limits, self._warnings.append)

    def _kept_files(self, store: UndoStore) -> KeptFiles:
        return MortalFiles(self._kill, store, self._session, self._protects, 1 << 20)


async def check_kill(base: Path, calls: list[Call], steps: int) -> None:
    kill = Kill()
    async with open_project(base, keeper_class=kill.keeper) as project:
        (project.root / "a").write_text("one\n")
        trees = await make(project, calls)
        number = len(trees) - 1
        if not number:
            return
        with kill.after(steps):
            await project.keeper.undo(number)
    halfway = view(base / "project")
    paths = {path for tree in trees for path in tree}
    assert all(any(halfway.get(p) == tree.get(p) for tree in trees) for p in paths)
    async with open_project(base) as project:
        for _ in range(number):
            with suppress(UndoError):
                await project.keeper.undo()
        assert view(project.root) == trees[0]
        await project.keeper.redo(number)
        assert view(project.root) == trees[-1]


@settings(max_examples=examples(80), deadline=None)
@given(CALLS, st.integers(0, 12))
def test_a_killed_undo_is_finished_by_the_next(calls: list[Call], steps: int) -> None:
    with directory() as base:
        asyncio.run(check_kill(base, calls, steps))


async def test_a_killed_call_is_not_undone_blindly(tmp_path: Path) -> None:
    kill = Kill()
    async with open_project(tmp_path, keeper_class=kill.keeper) as project:
        (project.root / "a").write_text("one\n")
        await project.call("write_file", path="b", content="b\n")
        with kill.after(1):
            await project.call("write_file", path="a", content="two\n")
    async with open_project(tmp_path) as project:
        with pytest.raises(UndoError, match="a: it was changed since"):
            await project.keeper.undo()
        await project.keeper.undo(force=True)
        assert (project.root / "a").read_text() == "one\n"
        await project.keeper.undo()
        assert not (project.root / "b").exists()


async def test_a_command_of_a_killed_program_is_said(tmp_path: Path) -> None:
    kill = Kill()
    async with open_project(tmp_path, keeper_class=kill.keeper) as project:
        await project.call("write_file", path="b", content="b\n")
        with kill.after(1):
            await project.call("execute_command", command="touch $(echo c)")
    async with open_project(tmp_path) as project:
        moved = await project.keeper.undo()
        assert moved.labels == ["write_file b"]
        assert "touch $(echo c) was interrupted" in moved.notes[0]
        assert (project.root / "c").exists()
