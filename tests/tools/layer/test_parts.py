"""The user keeps some parts of an effect: what is kept is whole, and the rest is as before."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.files.linediff import hunks_of, with_hunks
from shepherd.tools.layer.change import Change
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.parts import Parts, with_directories
from tests.examples import few
from tests.tools.layer.running import BOX, run_layered
from tests.tools.layer.stories import Story, tell
from tests.tools.sandbox.boxes import need
from tests.undo.project import view

MakeLayer = Callable[[Path], Layer]
LIMIT = 1 << 20
LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "longer\r\n"]), max_size=60)
TEXTS = st.tuples(LINES, st.sampled_from(["", "end"])).map(lambda t: "".join(t[0]) + t[1])


def keep(layer: Layer, changes: list[Change], numbers: set[int]) -> tuple[set[str], list[str]]:
    """Commit these parts; returns what was committed and what was not."""
    paths, dropped = Parts(layer, changes, LIMIT).choose(numbers)
    paths = with_directories(changes, paths)
    commit(layer, [change for change in changes if change.path in paths])
    return paths, dropped


def count_of(layer: Layer, changes: list[Change]) -> int:
    return max(1, len(Parts(layer, changes, LIMIT).offered))


@given(TEXTS, TEXTS, st.randoms())
def test_each_hunk_can_be_kept_alone(before: str, after: str, chance: random.Random) -> None:
    hunks = hunks_of(before, after)
    assert with_hunks(before, hunks) == after
    assert with_hunks(before, []) == before
    some = [hunk for hunk in hunks if chance.random() < 0.5]
    rest = [hunk for hunk in hunks if hunk not in some]
    half = with_hunks(before, some)
    # the hunks that are left are those between the half and the whole
    assert len(hunks_of(half, after)) <= len(rest) or "\r" in before + after
    assert (half == before) == (not some)


def story_of(tmp_path: Path, seed: int) -> tuple[Story, Path, Layer, list[Change]]:
    story = tell(tmp_path, seed)
    root = tmp_path / "root"
    story.copy(root)
    return story, root, *story.layer(tmp_path / "layers", root)


@pytest.mark.parametrize("seed", range(few(300, 25)))
def test_some_parts_are_as_after_and_the_rest_as_before(tmp_path: Path, seed: int) -> None:
    story, root, layer, changes = story_of(tmp_path, seed)
    chance = random.Random(seed)
    numbers = {n for n in range(1, count_of(layer, changes) + 1) if chance.random() < 0.5}
    paths, _dropped = keep(layer, changes, numbers)
    after = view(root)
    for path in {*story.before, *story.after}:
        side = story.after if path in paths else story.before
        if not (root / path).is_dir() or path in paths:
            assert after.get(path) == side.get(path), path
    layer.drop()


@pytest.mark.parametrize("seed", range(few(100, 8)))
def test_all_parts_are_the_whole_and_none_is_nothing(tmp_path: Path, seed: int) -> None:
    story, root, layer, changes = story_of(tmp_path, seed)
    assert keep(layer, changes, set())[0] == set()
    assert view(root) == story.before
    numbers = set(range(1, count_of(layer, changes) + 1))
    assert keep(layer, changes, numbers)[1] == []
    assert view(root) == story.after
    layer.drop()


@pytest.mark.parametrize("seed", range(few(100, 12)))
def test_kept_hunks_are_what_git_apply_makes_of_their_diffs(
    tmp_path: Path, make_layer: MakeLayer, seed: int
) -> None:
    need(BOX)
    chance = random.Random(seed)
    root = tmp_path / "root"
    root.mkdir()
    lines = [f"line {n}\n" for n in range(120)]
    lines[-1:] = ["last"] if seed % 2 else lines[-1:]
    (root / "a.txt").write_text("".join(lines))
    layer = make_layer(root)
    for _ in range(12):
        place = chance.randrange(len(lines))
        lines[place : place + chance.randrange(3)] = [
            f"new {chance.random()}\n"
        ] * chance.randrange(3)
    (tmp_path / "new").write_text("".join(lines))
    run_layered(BOX, root, layer, f"cat > a.txt <<'END'\n{''.join(lines)}\nEND")
    changes = [*read_effect(layer).changes]
    parts = Parts(layer, changes, LIMIT).offered
    numbers = {n for n in range(1, len(parts) + 1) if chance.random() < 0.5}
    numbers = numbers or {1}

    plain = tmp_path / "plain"
    subprocess.run(["cp", "-a", root, plain], check=True)
    for part in (parts[number - 1] for number in sorted(numbers, reverse=True)):
        git = ["git", "-C", plain, "apply", "-p0", "--unidiff-zero", "--whitespace=nowarn"]
        subprocess.run(git, input=f"{part.diff}\n".encode(), check=True)
    keep(layer, changes, numbers)
    assert view(root) == view(plain)


def parts_after(root: Path, layer: Layer, line: str) -> tuple[list[Change], list[str]]:
    """The changes of a line, and the titles of their parts."""
    need(BOX)
    run_layered(BOX, root, layer, line)
    changes = [*read_effect(layer).changes]
    return changes, [part.name for part in Parts(layer, changes, LIMIT).offered]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    for path in ("a", "b", "src/one", "src/two", "src/deep/three"):
        (root / path).write_text(f"{path}\n2\n3\n")
    (root / "long").write_text("".join(f"{n}\n" for n in range(50)))
    return root


def test_what_belongs_together_is_one_part(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    line = (
        "sed -i -e s/^1$/one/ -e s/^40$/forty/ long; chmod 600 long; mv a c; rm -r src/deep; "
        "mkdir -p new/deep; echo x > new/deep/file; mkdir empty; chmod 700 b; rm src/one; "
        "mkdir src/one; echo y > src/one/y"
    )
    changes, titles = parts_after(root, layer, line)
    assert titles == [
        "renamed a to c (6 bytes)",
        "changed the mode of b to 700",
        "made empty/",
        "changed long (145 bytes), hunk 1 of 2",
        "changed long (145 bytes), hunk 2 of 2",
        "made new/deep/file (2 bytes)",
        "deleted src/deep/ (1 file, 19 bytes)",
        "made src/one/; made src/one/y (2 bytes); deleted src/one (12 bytes)",
    ]
    _paths, dropped = keep(layer, changes, {5, 6})
    assert len(dropped) == 6
    assert (root / "new/deep/file").read_text() == "x\n"
    assert (root / "a").exists()
    assert not (root / "empty").exists()
    assert "\none\n" not in (root / "long").read_text()
    assert "\nforty\n" in (root / "long").read_text()
    assert (root / "long").stat().st_mode & 0o777 == 0o600


def test_a_renamed_directory_is_one_part(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    _changes, titles = parts_after(root, layer, "mv src lib || (cp -a src lib; rm -r src); rm b")
    assert titles[0].startswith("renamed src/ to lib/ (3 files") or titles[1].startswith("renamed")
    assert len(titles) == 2


def test_very_many_parts_end_with_the_rest(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    changes, titles = parts_after(root, layer, "for i in $(seq 300); do echo $i > n$i; done; rm b")
    assert len(titles) == 201
    assert titles[-1] == "101 other changes"
    keep(layer, changes, {201})
    assert len([*root.glob("n*")]) + (not (root / "b").exists()) == 101


def test_a_hard_link_keeps_what_the_file_was(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    line = "sed -i -e s/^1$/one/ -e s/^40$/forty/ long; ln long copy"
    changes, titles = parts_after(root, layer, line)
    assert len(titles) == 3
    keep(layer, changes, {1, 2})
    assert "forty" in (root / "copy").read_text()
    assert "forty" not in (root / "long").read_text()
