"""What something else changed while a command ran is merged or left alone, never overwritten."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import ConflictError
from shepherd.tools import program
from shepherd.tools.layer import merge
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.shared import SharedLayer
from tests.examples import examples
from tests.tools.layer.running import BOX, run_layered
from tests.tools.sandbox.boxes import need
from tests.undo.project import view

MakeLayer = Callable[[Path], Layer]
LINES = "".join(f"line {n}\n" for n in range(30))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "file").write_text(LINES)
    (root / "dir" / "in").write_text("1\n")
    (root / "link").symlink_to("file")
    return root


def run(root: Path, layer: Layer, line: str) -> None:
    """Run a line in the layer."""
    need(BOX)
    run_layered(BOX, root, layer, line)


def run_plainly(root: Path, line: str) -> None:
    """What something else does."""
    subprocess.run(["bash", "-c", line], cwd=root, check=True)


CONFLICTS = (
    ("echo x >> file", "echo y >> file", "file (changed)"),
    ("echo x >> file", "sed -i s/1/2/ file", "file (changed)"),
    ("echo x >> file", "rm file", "file (deleted)"),
    ("echo x >> file", "chmod 600 file", "file (changed)"),
    ("chmod 700 file", "echo y >> file", "file (changed)"),
    ("rm file", "echo y >> file", "file (changed)"),
    ("mv file other", "echo y >> file", "file (changed)"),
    ("echo x > new", "echo y > new", "new (changed)"),
    ("ln -s x new", "ln -s y new", "new (changed)"),
    ("mkdir new", "echo y > new", "new (changed)"),
    ("echo x > new", "mkdir new", "new (changed)"),
    ("rm file; mkdir file", "echo y >> file", "file (changed)"),
    ("rm -r dir; echo x > dir", "echo y > dir/in", "dir/in (changed)"),
    ("rm -r dir", "echo y > dir/new", "dir/new (changed)"),
    ("rm -r dir; mkdir dir", "echo y > dir/new", "dir/new (changed)"),
    ("echo x > dir/new", "rm -r dir", "dir (deleted)"),
    ("echo x > dir/in", "rm -r dir; echo y > dir", "dir/in (deleted)"),
    ("echo x > dir/in", "rm -r dir; ln -s /tmp dir", "dir/in (deleted)"),
    ("chmod 700 dir", "rm -r dir", "dir (deleted)"),
    ("ln -sfn x link", "ln -sfn y link", "link (changed)"),
    ("ln -sfn x link", "rm link; mkdir link", "link (changed)"),
)


@pytest.mark.parametrize(("ours", "theirs", "conflict"), CONFLICTS)
def test_a_change_on_both_sides_is_a_conflict(
    root: Path, make_layer: MakeLayer, ours: str, theirs: str, conflict: str
) -> None:
    layer = make_layer(root)
    run(root, layer, ours)
    run_plainly(root, theirs)
    now = view(root)

    with pytest.raises(ConflictError) as error:
        merge.reconcile(layer, read_effect(layer).changes)

    assert conflict in error.value.paths
    assert view(root) == now


@pytest.mark.parametrize(
    ("ours", "theirs"), [case[:2] for case in CONFLICTS if case[2] != "dir/new (changed)"]
)
def test_so_is_one_after_the_effect_was_read(
    root: Path, make_layer: MakeLayer, ours: str, theirs: str
) -> None:
    layer = make_layer(root)
    run(root, layer, ours)
    changes, _ = merge.reconcile(layer, read_effect(layer).changes)
    run_plainly(root, theirs)
    now = view(root)

    with pytest.raises(ConflictError):
        commit(layer, changes)

    assert view(root) == now


ALIKE = (
    ("echo x > new", "echo x > new"),
    ("rm file", "rm file"),
    ("rm -r dir", "rm -r dir"),
    ("mkdir new", "mkdir new"),
    ("mkdir new; echo x > new/in", "mkdir new; echo y > new/other"),
    ("echo x >> dir/in", "echo y > dir/new"),
    ("sed -i s/line/x/ file", "sed -i s/line/x/ file"),
    ("mv dir/in moved; echo x >> moved", "echo y > dir/new"),
    ("echo x > file", "touch dir; touch dir/in"),
)


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_what_does_not_touch_is_committed(
    root: Path, tmp_path: Path, make_layer: MakeLayer, ours: str, theirs: str
) -> None:
    both = tmp_path / "both"
    shutil.copytree(root, both, symlinks=True)
    layer = make_layer(root)
    run(root, layer, ours)
    run_plainly(root, theirs)

    changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)

    subprocess.run(["bash", "-c", f"{theirs}; {ours}"], cwd=both, capture_output=True, check=False)
    assert view(root) == view(both)


def test_a_directory_stays_for_what_may_not_be_deleted(root: Path, make_layer: MakeLayer) -> None:
    (root / "dir" / "deep").mkdir()
    (root / "dir" / "deep" / "base.db").write_text("1\n")
    (root / "dir" / "other").mkdir()
    layer = make_layer(root)
    run(root, layer, "rm -r dir")
    approved = [c for c in read_effect(layer).changes if not c.path.endswith("base.db")]

    changes, _merged = merge.reconcile(layer, approved)
    commit(layer, changes)

    kept = sorted(path for path in view(root) if path.startswith("dir"))
    assert kept == ["dir", "dir/deep", "dir/deep/base.db"]


def test_what_was_renamed_is_changed_in_peace(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    run(root, layer, "mv file other")
    (root / "new").touch()  # in the same directory

    changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)

    assert sorted(path.name for path in root.iterdir()) == ["dir", "link", "new", "other"]


def merged(root: Path, layer: Layer, ours: str, theirs: str) -> list[str]:
    """What is merged if a question stands between both changes."""
    run(root, layer, ours)
    merge.keep_bases(layer.base, root, [c.path for c in read_effect(layer).changes])
    run_plainly(root, theirs)
    changes, paths = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)
    return paths


@pytest.mark.parametrize(
    "ours", ["sed -i '2s/line/ours/' file", "sed '2s/line/ours/' file > x; mv x file"]
)
@pytest.mark.parametrize(
    "theirs", ["sed -i '25s/line/theirs/' file", "sed '25s/line/theirs/' file > y; cp y file; rm y"]
)
def test_lines_that_do_not_touch_are_merged(
    root: Path, make_layer: MakeLayer, ours: str, theirs: str
) -> None:
    assert merged(root, make_layer(root), ours, theirs) == ["file"]

    text = LINES.replace("line 1\n", "ours 1\n").replace("line 24\n", "theirs 24\n")
    assert (root / "file").read_text() == text


def test_a_mode_and_a_change_of_content_are_merged(root: Path, make_layer: MakeLayer) -> None:
    assert merged(root, make_layer(root), "chmod 700 file", "echo y >> file") == ["file"]
    assert (root / "file").read_text() == f"{LINES}y\n"
    assert (root / "file").stat().st_mode & 0o777 == 0o700

    assert merged(root, make_layer(root), "echo x >> dir/in", "chmod 700 dir/in") == ["dir/in"]
    assert (root / "dir" / "in").read_text() == "1\nx\n"
    assert (root / "dir" / "in").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("sed -i '2s/line/ours/' file", "sed -i '2s/line/theirs/' file"),
        ("printf '\\0ours' > file", "sed -i '25s/line/theirs/' file"),
        ("truncate -s 8M file", "sed -i '25s/line/theirs/' file"),
        ("sed -i '2s/line/ours/' file", "truncate -s 8M file"),
    ],
)
def test_what_can_not_be_merged_is_a_conflict(
    root: Path, make_layer: MakeLayer, ours: str, theirs: str
) -> None:
    with pytest.raises(ConflictError):
        merged(root, make_layer(root), ours, theirs)


def test_without_git_there_is_no_merge(
    root: Path, make_layer: MakeLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "own_program", dict[str, str]().get)
    with pytest.raises(ConflictError):
        merged(root, make_layer(root), "sed -i '2s/l/x/' file", "sed -i '25s/l/y/' file")


async def test_what_the_user_changes_between_calls_of_one_layer_is_merged(
    root: Path, tmp_path: Path
) -> None:
    shared = SharedLayer()
    layer = await shared.open(tmp_path / "layers", root)
    run(root, layer, "sed -i '2s/line/ours/' file; mkdir -p new/dir")
    await shared.open(tmp_path / "layers", root)  # for the next call
    run_plainly(root, "sed -i '25s/line/theirs/' file")

    changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)
    await shared.drop()

    text = LINES.replace("line 1\n", "ours 1\n").replace("line 24\n", "theirs 24\n")
    assert (root / "file").read_text() == text


def test_a_file_that_had_changed_before_it_was_kept_is_not_merged(
    root: Path, make_layer: MakeLayer
) -> None:
    layer = make_layer(root)
    run_plainly(root, "sed -i '25s/line/theirs/' file")

    with pytest.raises(ConflictError):
        merged(root, layer, "sed -i '2s/line/ours/' file", "true")


def test_a_commit_keeps_what_other_layers_need(root: Path, make_layer: MakeLayer) -> None:
    first, second = make_layer(root), make_layer(root)
    run(root, first, "sed -i '2s/line/first/' file; echo 1 > one")
    run(root, second, "sed -i '25s/line/second/' file; echo 1 > two")
    for layer in (first, second):
        changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
        commit(layer, changes)

    text = LINES.replace("line 1\n", "first 1\n").replace("line 24\n", "second 24\n")
    assert (root / "file").read_text() == text
    assert (root / "one").exists()
    assert (root / "two").exists()


EDITS = st.lists(st.tuples(st.integers(0, 29), st.sampled_from(["", "x\n", "y\n", "x\ny\n"])))


@settings(max_examples=examples(200, 20))
@given(ours=EDITS, theirs=EDITS)
def test_a_merge_has_the_lines_of_both(
    tmp_path_factory: pytest.TempPathFactory,
    ours: list[tuple[int, str]],
    theirs: list[tuple[int, str]],
) -> None:
    base = tmp_path_factory.mktemp("merge")
    root = base / "root"
    root.mkdir()
    (root / "file").write_text(LINES)
    layer = Layer(base / "layers", root)
    try:
        (layer.upper / "file").write_text(edited(ours))
        merge.keep_bases(layer.base, root, ["file"])
        (root / "file").write_text(edited(theirs))
        try:
            changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
        except ConflictError:
            assert ours
            assert theirs
            return
        commit(layer, changes)
        mine, other = edited(ours).splitlines(), edited(theirs).splitlines()
        kept = [line for line in mine if line in other or "line" not in line]
        assert not set(kept) - set((root / "file").read_text().splitlines())
    finally:
        layer.drop()


def edited(edits: list[tuple[int, str]]) -> str:
    """The lines, of which some are replaced."""
    lines = LINES.splitlines(keepends=True)
    for number, text in edits:
        lines[number] = text
    return "".join(lines)


@pytest.mark.parametrize(("ours", "theirs"), [case[:2] for case in CONFLICTS])
def test_what_a_layer_shows_both_sides_of_can_be_committed(
    root: Path, make_layer: MakeLayer, ours: str, theirs: str
) -> None:
    layer = make_layer(root)
    run(root, layer, ours)
    run_plainly(root, theirs)
    now = view(root)
    sentences = merge.show_conflicts(layer, read_effect(layer).changes)
    assert view(root) == now

    conflicts: set[str] = set()
    try:
        changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
    except ConflictError as error:
        changes, conflicts = [], {path.split(" ")[0] for path in error.paths}
    if conflicts:  # about links, and what has taken the place of something else
        assert conflicts - {sentence.split(" ")[0] for sentence in sentences}
        assert "ln" in ours or "mkdir" in ours + theirs or "> dir" in ours
        return
    assert sentences
    commit(layer, changes)
    # what something else wrote is there, beside ours if both are text
    for path, (_mode, content) in now.items():
        assert set(content.splitlines()) <= set(view(root)[path][1].splitlines())


def test_a_deletion_is_done_again_after_its_conflict(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    run(root, layer, "rm -r dir file")
    run_plainly(root, "echo y >> dir/in; echo z > dir/new")
    sentences = merge.show_conflicts(layer, read_effect(layer).changes)
    paths = [sentence.removesuffix(" was changed there, so it is back") for sentence in sentences]
    assert sorted(paths) == ["dir", "dir/in", "dir/new"]
    assert [change.path for change in read_effect(layer).changes] == ["file"]
    run(root, layer, "rm -r dir")
    changes, _merged = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)
    assert sorted(view(root)) == ["link"]


def test_what_changes_again_is_merged_with_the_answer(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    run(root, layer, "sed -i '2s/line/ours/' file")
    run_plainly(root, "sed -i '2s/line/theirs/' file")
    assert merge.show_conflicts(layer, read_effect(layer).changes)
    text = (layer.upper / "file").read_text()
    assert text.startswith("line 0\n<<<<<<< this turn\nours 1\n=======\ntheirs 1\n>>>>>>> ")
    run(root, layer, "sed -i -e '/^[<=>]/d' -e '/^theirs/d' file")
    run_plainly(root, "sed -i '25s/line/later/' file")

    changes, paths = merge.reconcile(layer, read_effect(layer).changes)
    commit(layer, changes)

    assert paths == ["file"]
    expected = LINES.replace("line 1\n", "ours 1\n").replace("line 24\n", "later 24\n")
    assert (root / "file").read_text() == expected
