"""A commit that is killed, disturbed or out of space has done everything or nothing."""

import random
from collections.abc import Generator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from signal import SIGKILL

import pytest

from shepherd.tools.layer.commit import commit, recover
from tests.examples import few
from tests.tools.layer.stories import Story, at_step, die, in_fork, other_file_system, tell
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


@pytest.mark.parametrize("seed", range(few(40, 2)))
def test_a_commit_that_is_killed_at_any_step_is_whole_or_nothing(
    tmp_path: Path, place: Path, seed: int
) -> None:
    story = tell(tmp_path, seed)
    outcomes: list[bool] = []
    for step in count(1):
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
    # once it is decided that everything is done, it is
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("seed", range(few(40, 3)))
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
