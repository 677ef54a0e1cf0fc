"""A commit that is killed, disturbed or out of space has done everything or nothing."""

import os
import random
import tempfile
from collections.abc import Callable, Generator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from signal import SIGKILL
from time import sleep

import pytest

from shepherd.errors import ConflictError
from shepherd.tools.layer.change import Deed
from shepherd.tools.layer.commit import commit, recover
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import reconcile
from shepherd.tools.sandbox.view.private import remove_tree
from tests.examples import few
from tests.tools.layer.stories import (
    Story,
    at_step,
    die,
    fork,
    in_fork,
    other_file_system,
    tell,
    tell_of_git,
    wait_for,
    without_exchange,
)
from tests.tools.users import as_ordinary_user
from tests.undo.project import view


@pytest.fixture(params=["same file system", "other file system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Path]:
    near = request.param == "same file system"
    with nullcontext(tmp_path) if near else other_file_system() as base:
        yield base / "layers"


def commit_until(story: Story, place: Path, root: Path, step: int) -> int:
    """Commit in a fork, which is killed at a step; returns how it ended."""

    def work() -> None:
        layer, changes = story.layer(place, root)
        at_step(step, die)
        commit(layer, changes)

    return in_fork(work)


@pytest.mark.long
@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("seed", [13, *range(few(40, 0))])  # 13: a link replaces a directory
def test_a_commit_that_is_killed_at_any_step_is_whole_or_nothing(
    tmp_path: Path, place: Path, seed: int, *, exchange: bool
) -> None:
    story = tell(tmp_path, seed)
    with nullcontext() if exchange else without_exchange():
        outcomes = kill_at_each_step(tmp_path, place, story, every=few(1, 3))
    # once it is decided that everything is done, it is
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.long
def test_a_killed_commit_of_git_leaves_no_lock(tmp_path: Path, place: Path) -> None:
    outcomes = kill_at_each_step(tmp_path, place, tell_of_git(tmp_path), every=few(1, 24))
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def kill_at_each_step(tmp_path: Path, place: Path, story: Story, every: int = 1) -> list[bool]:
    """Whether the recovery after each step, or each `every`th one, has finished the commit."""
    outcomes: list[bool] = []
    for step in count(1, every):
        root = tmp_path / str(step)
        story.copy(root)

        code = commit_until(story, place, root, step)
        assert code in (0, -SIGKILL)
        recover(place)

        after = view(root)
        assert after in (story.before, story.after), step
        assert not [*place.glob("layer-*")]
        outcomes.append(after == story.after)
        if code == 0:
            break
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize("seed", range(few(40, 1)))
def test_a_recovery_that_is_killed_leaves_the_rest_to_the_next(
    tmp_path: Path, place: Path, seed: int
) -> None:
    chance = random.Random(seed)
    story = tell(tmp_path, seed)
    for number in range(5):
        root = tmp_path / str(number)
        story.copy(root)
        commit_until(story, place, root, chance.randint(1, 60))

        def recover_until(step: int = chance.randint(1, 20)) -> None:
            at_step(step, die)
            recover(place)

        for _killed in range(chance.randint(1, 4)):
            in_fork(recover_until)
        recover(place)

        assert view(root) in (story.before, story.after)
        assert not [*place.glob("layer-*")]


class Neighbour:
    """Something else that writes to a file at a step of a commit."""

    TEXT = "the neighbour's\n"

    def __init__(self, chance: random.Random, story: Story, notes: Path) -> None:
        links = {path for path, (mode, _) in (story.before | story.after).items() if not mode}
        paths = [
            p for p in story.before | story.after if not links & {p, *map(str, Path(p).parents)}
        ]
        self.path = chance.choice(sorted(paths))
        self._write = chance.choice((self._append, self._replace))
        self._notes = notes

    def act(self, root: Path) -> None:
        """Write to the file, and note whether that worked."""
        try:
            self._write(root / self.path)
            self._notes.write_text("written")
        except OSError:  # a directory is there, or the one above it is not
            self._notes.write_text("refused")

    @property
    def deed(self) -> str:
        """What became of it."""
        return self._notes.read_text() if self._notes.exists() else "nothing"

    def _append(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(self.TEXT)

    def _replace(self, path: Path) -> None:
        new = path.with_name("new")
        new.write_text(self.TEXT)
        try:
            new.replace(path)
        except OSError:
            new.unlink()
            raise


@pytest.mark.long
@pytest.mark.parametrize("seed", range(few(60, 2)))
def test_what_something_else_writes_during_a_commit_stays(
    tmp_path: Path, place: Path, seed: int
) -> None:
    chance = random.Random(seed)
    story = tell(tmp_path, seed)
    for step in count(1, few(1, 5)):
        root = tmp_path / str(step)
        story.copy(root)
        neighbour = Neighbour(chance, story, tmp_path / f"notes{step}")

        def work(step: int = step, root: Path = root, act: Callable[[Path], None] = neighbour.act):
            layer, changes = story.layer(place, root)
            at_step(step, lambda: act(root))
            try:
                commit(layer, changes)
            except ConflictError:
                die()

        code = in_fork(work)
        assert code in (0, -SIGKILL)

        after = view(root)
        expected = dict(story.before if code else story.after)
        if neighbour.deed == "written":
            _mode, content = after.pop(neighbour.path)
            assert content.endswith(neighbour.TEXT.encode())
            expected.pop(neighbour.path, None)
            for above in map(str, Path(neighbour.path).parents):  # it stays for what was written
                after.pop(above, None)
                expected.pop(above, None)
        assert after == expected, (step, neighbour.path)
        if neighbour.deed == "nothing":
            break
        remove_tree(root)
    recover(place)


def test_another_session_that_starts_meanwhile_does_not_disturb(
    tmp_path: Path, place: Path
) -> None:
    story = tell(tmp_path, 0)
    for step in range(1, 40, 4):
        root = tmp_path / str(step)
        story.copy(root)

        def work(step: int = step, root: Path = root) -> None:
            layer, changes = story.layer(place, root)
            at_step(step, lambda: sleep(0.02))
            commit(layer, changes)
            layer.drop()

        process = fork(work)
        recover(place)
        sleep(0.01)
        recover(place)

        assert wait_for(process) == 0
        assert view(root) == story.after


@pytest.mark.long
@pytest.mark.parametrize("seed", range(few(50, 3)))
def test_of_commits_at_once_no_change_is_lost(tmp_path: Path, place: Path, seed: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    names = ("one", "two", "three")
    for name in names:
        (root / name).write_text("".join(f"line {n}\n" for n in range(60)))
    before, chance = view(root), random.Random(seed)
    chosen = [chance.sample(names, chance.randint(1, 3)) for _ in range(4)]
    reader, writer = os.pipe()

    def work(number: int) -> None:
        layer = Layer(place, root)
        for name in chosen[number]:
            text = (root / name).read_text()
            (layer.upper / name).write_text(text.replace(f"line {number * 15}\n", "changed\n"))
        (layer.upper / f"new{number}").touch()
        os.close(writer)
        os.read(reader, 1)  # all of them begin at once
        try:
            changes, _merged = reconcile(layer, read_effect(layer).changes)
            commit(layer, changes)
        except ConflictError:
            die()
        finally:
            layer.drop()

    processes = [fork(partial(work, number)) for number in range(4)]
    while len([*place.glob("layer-*/upper/new*")]) < 4:
        sleep(0.005)
    os.close(writer)
    codes = [wait_for(process) for process in processes]
    os.close(reader)

    assert 0 in codes
    expected = {name: before[name][1] for name in names}
    for number, code in enumerate(codes):
        assert code in (0, -SIGKILL)
        assert (root / f"new{number}").exists() == (code == 0)
        for name in chosen[number] if code == 0 else ():
            line = f"line {number * 15}\n".encode()
            expected[name] = expected[name].replace(line, b"changed\n")
    assert {name: (root / name).read_bytes() for name in names} == expected


def test_holes_stay_holes(tmp_path: Path, place: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    layer = Layer(place, root)
    with (layer.upper / "sparse").open("wb") as file:
        for at in (5 << 20, 400 << 20):
            file.seek(at)
            file.write(b"x" * 9000)
        file.truncate(1 << 30)

    commit(layer, read_effect(layer).changes)
    layer.drop()

    with (root / "sparse").open("rb") as file:
        for at in (5 << 20, 400 << 20):
            file.seek(at - 10)
            assert file.read(9020) == bytes(10) + b"x" * 9000 + bytes(10)
    status = (root / "sparse").stat()
    assert status.st_size == 1 << 30
    assert status.st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("far", [False, True], ids=["same file system", "other file system"])
def test_what_nobody_may_read_is_committed_too(*, far: bool) -> None:
    base = Path(tempfile.mkdtemp(prefix="shepherd-test-"))
    with other_file_system() if far else nullcontext(base) as place:
        root = base / "root"
        (root / "old").mkdir(parents=True)
        for name in ("read", "changed", "closed", "old/in"):
            (root / name).write_text("before")
        (root / "closed").chmod(0)
        (place / "layers").mkdir(parents=True)
        for path in (place, base):
            as_ordinary_user(path, lambda: None)  # they are this user's now

        as_ordinary_user(base, lambda: commit_closed(place / "layers", root))

        modes = {path: mode & 0o777 for path, (mode, _content) in view(root).items()}
        opened = {"closed": 0o644, "old/in": 0o644}
        assert modes == opened | dict.fromkeys(("read", "changed", "old", "new", "new/in"), 0)
        assert (root / "changed").read_text() == (root / "new" / "in").read_text() == "after"
        assert (root / "read").read_text() == (root / "old" / "in").read_text() == "before"
    remove_tree(base)


def commit_closed(place: Path, root: Path) -> None:
    """Commit what `chmod 000` leaves, as an ordinary user."""
    layer = Layer(place, root)
    for name in ("old", "new"):
        (layer.upper / name).mkdir()
    for name in ("read", "closed"):  # as the kernel copies them
        (layer.upper / name).write_text("before")
        status = (root / name).stat()
        os.utime(layer.upper / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    (layer.upper / "closed").chmod(0o644)
    for name in ("changed", "new/in"):
        (layer.upper / name).write_text("after")
    for name in ("read", "changed", "new/in", "old", "new"):
        (layer.upper / name).chmod(0)
    read_effect(layer)  # as for a question, after which the model goes on
    changes = read_effect(layer).changes
    assert {c.path for c in changes if c.deed is Deed.MODE} == {"read", "closed", "old"}
    commit(layer, reconcile(layer, changes)[0])
    layer.drop()


def plant_links(root: Path, outside: Path) -> None:
    """What a command in the background may do where a commit puts its copies."""
    for aside in root.glob(".shepherd-*"):
        for number in range(4):
            with suppress(OSError):
                (aside / f"{number}-new").symlink_to(outside / "file")


def swap_copies(root: Path, outside: Path) -> None:
    """The same, with the whole directory."""
    for aside in root.glob(".shepherd-layer-*"):
        with suppress(OSError):
            aside.rename(root / "away")
            aside.symlink_to(outside)


@pytest.mark.long
@pytest.mark.parametrize("attack", [plant_links, swap_copies])
def test_copies_of_new_files_never_get_out(
    tmp_path: Path, attack: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("the user's\n")
    (outside / "file").chmod(0o600)
    before = view(outside)
    with other_file_system() as base:
        for step in range(1, 40, few(1, 2)):
            root = tmp_path / str(step)
            root.mkdir()
            (root / "changed").write_text("old")

            def work(step: int = step, root: Path = root) -> None:
                layer = Layer(base / "layers", root)
                (layer.upper / "changed").write_text("new")
                (layer.upper / "changed").chmod(0o666)
                (layer.upper / "made").write_text("new")
                changes, _merged = reconcile(layer, read_effect(layer).changes)
                at_step(step, lambda: attack(root, outside))
                with suppress(OSError, ConflictError):
                    commit(layer, changes)

            in_fork(work)

            assert view(outside) == before, step
        recover(base / "layers")
