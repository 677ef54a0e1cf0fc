"""An effect in words: a summary, a listing and a diff."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.describe import diff, listing, summary
from shepherd.tools.layer.effect import Effect, read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.parts import Parts
from tests.tools.layer.running import BOX, run_layered
from tests.tools.sandbox.boxes import need

MakeLayer = Callable[[Path], Layer]


def effect_of(root: Path, layer: Layer, *lines: str) -> Effect:
    """The effect of a shell script."""
    need(BOX)
    run_layered(BOX, root, layer, "; ".join(lines))
    return read_effect(layer)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    for path in ("a", "b", "src/one", "src/two", "src/deep/three"):
        (root / path).write_text(f"{path}\n2\n3\n")
    return root


def test_each_kind_of_change_is_counted_and_listed(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    (root / "data").mkdir()
    (root / "data" / "base.db").write_bytes(b"\0" * 1000)
    lines = (
        *("echo 4 >> a", "mv b c", "rm -r data", "echo x > src/new", "ln -s a link"),
        *("chmod 700 src/one", "mkdir empty", "printf '\\0\\0' > src/two"),
    )

    effect = effect_of(root, layer, *lines)

    assert summary(effect) == (
        "changed 2 files, made 1 and 1 link, renamed 1, deleted 1, changed the mode of 1"
    )
    assert listing(effect, layer) == [
        "changed a (8 bytes)",
        "changed src/two (2 bytes)",
        "made empty/",
        "made link (link to a)",
        "made src/new (2 bytes)",
        "renamed b to c (6 bytes)",
        "deleted data/ (1 file, 1,000 bytes)",
        "changed the mode of src/one to 700",
    ]
    assert diff(effect, layer, 10_000).splitlines() == [
        *("--- a", "+++ a", "@@ -1,3 +1,4 @@", " a", " 2", " 3", "+4"),
        "src/two: changed (12 bytes became 2)",
        "link: made (link to a)",
        *("--- src/new", "+++ src/new", "@@ -0,0 +1 @@", "+x"),
        "b renamed to c",
        "data/base.db: deleted (1,000 bytes)",
        "src/one: mode 700",
    ]


def test_a_moved_directory_is_one_rename(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    effect = effect_of(root, layer, "mv src lib")

    assert summary(effect) == "renamed 3 files"
    assert listing(effect, layer) == ["renamed src/ to lib/ (3 files, 43 bytes)"]


def test_what_a_moved_directory_leaves_behind_is_deleted(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    effect = effect_of(root, layer, "rm src/two", "mv src lib", "echo 1 > lib/new")

    assert listing(effect, layer) == [
        "made lib/",
        "made lib/new (2 bytes)",
        "renamed src/deep/ to lib/deep/ (1 file, 19 bytes)",
        "renamed src/one to lib/one (12 bytes)",
        "deleted src/ (1 file, 12 bytes)",
    ]


def test_equal_content_elsewhere_is_no_rename(root: Path, make_layer: MakeLayer) -> None:
    (root / "empty").touch()
    effect = effect_of(root, make_layer(root), "cp a copy", "rm b empty", ": > other")

    assert summary(effect) == "made 2 files, deleted 2"


def test_a_large_new_directory_is_one_line(root: Path, make_layer: MakeLayer) -> None:
    line = "mkdir -p modules/x; for i in $(seq 50); do echo $i > modules/x/$i; done"

    layer = make_layer(root)
    effect = effect_of(root, layer, line)

    assert listing(effect, layer) == ["made modules/ (50 files, 141 bytes)"]
    layer = make_layer(root)
    assert listing(effect_of(root, layer, "mkdir new; : > new/a; : > new/b"), layer) == [
        "made new/",
        "made new/a (0 bytes)",
        "made new/b (0 bytes)",
    ]


def test_names_stay_on_their_lines(root: Path, make_layer: MakeLayer) -> None:
    name = os.fsdecode(b"\xff\n\x1b[2J")
    layer = make_layer(root)
    (layer.upper / name).write_text("1\n")
    (layer.upper / "link").symlink_to("x\ny")

    effect = read_effect(layer)

    for line in (*listing(effect, layer), *diff(effect, layer, 10_000).splitlines()):
        assert "\x1b" not in line
        line.encode()
    assert len(listing(effect, layer)) == 2
    assert len(diff(effect, layer, 10_000).splitlines()) == 5


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_diff_has_at_most_the_limit_and_says_what_is_missing(
    root: Path, make_layer: MakeLayer, seed: int
) -> None:
    chance = random.Random(seed)
    layer = make_layer(root)
    for number in range(chance.randint(1, 5)):
        lines = [chance.choice("aé\x1b") * chance.randint(0, 30) for _ in range(20)]
        (layer.upper / str(number)).write_text("\n".join(lines))
    effect = read_effect(layer)
    whole = diff(effect, layer, 1 << 20)
    limit = chance.randint(1, len(whole.encode()) + 1)

    text = diff(effect, layer, limit)

    if len(whole.encode()) < limit:
        assert text == whole
        return
    kept, _, note = text.rpartition("\n")
    assert len(kept.encode()) <= limit
    assert whole.startswith(kept)
    assert note.endswith(" left out]")


def test_the_listing_counts_what_it_leaves_out(root: Path, make_layer: MakeLayer) -> None:
    changes = [Change(str(n), Deed.MADE, Sort.FILE, 0o644, 1) for n in range(30)]

    lines = listing(Effect(tuple(changes)), make_layer(root), 5)

    assert len(lines) == 6
    assert lines[-1] == "and 25 more"


def test_many_files_in_directories_in_each_other_are_one_line(
    root: Path, make_layer: MakeLayer
) -> None:
    changes: list[Change] = []
    for depth in range(400):
        path = "/".join(["d"] * (depth + 1))
        changes.append(Change(path, Deed.MADE, Sort.DIRECTORY))
        changes += [Change(f"{path}/{n}", Deed.MADE, Sort.FILE, size=3) for n in range(50)]

    assert listing(Effect(tuple(changes)), make_layer(root)) == [
        "made d/ (20,000 files, 60,000 bytes)"
    ]


def test_nothing_is_nothing(root: Path, make_layer: MakeLayer) -> None:
    assert summary(Effect(())) == ""
    assert listing(Effect(()), make_layer(root)) == []


def test_many_large_texts_are_not_all_compared(root: Path, make_layer: MakeLayer) -> None:
    layer = make_layer(root)
    text = "a line of some text\n" * 40_000
    for number in range(30):
        (root / f"large{number}").write_text(f"{text}old\n{text[:99_000]}\nold\n")
        (layer.upper / f"large{number}").write_text(f"{text}new\n{text[:99_000]}\nnew\n")
    effect = read_effect(layer)

    shown = diff(effect, layer, 256 << 10)
    parts = Parts(layer, effect.changes, 256 << 10).offered

    assert 3 < shown.count("+++ ") < 15
    assert "other changes left out]" in shown
    assert 3 < sum("hunk" in part.hunk for part in parts) < 30
    assert len({part.path for part in parts}) == 30
