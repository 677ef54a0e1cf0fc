"""No box opens the outside when a directory changes places with a link while the box is set up."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import ConflictError, ToolError
from shepherd.tools.layer.change import Deed
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box, Watch
from shepherd.tools.sandbox.boxes.probe import capture
from shepherd.tools.sandbox.profile import Profile
from tests.examples import few
from tests.patience import PATIENCE
from tests.tools.flipping import flipping
from tests.tools.sandbox.boxes import BOXES, need
from tests.undo.project import view

STARTS = few(500, 16)
SECRET = "the outer secret"
COMMAND = "cat work/sub/* work/sub/.env work/sub/.git/*; touch work/sub/made work/sub/.git/made"
OLD_ROOT = "/oldroot"
"""Where bubblewrap keeps the root of the system while it mounts."""


def _swapped(base: Path) -> Profile:
    """A project whose `work/sub` is mounted on its own; its links lead out."""
    root, home, outside = base / "project", base / "home", base / "outside"
    for directory in (root / "work" / "sub" / ".git", home, outside / ".git"):
        directory.mkdir(parents=True)
    (root / "work" / "sub" / ".env").write_text("KEY=1\n", "utf-8")
    (outside / "secret").write_text(SECRET, "utf-8")
    (outside / ".git" / "config").write_text(SECRET, "utf-8")
    (root / "work" / "link").symlink_to(outside)
    (root / "work" / "old_root_link").symlink_to(f"{OLD_ROOT}{outside}")
    sub = root / "work" / "sub"
    protected = (sub / ".git", sub / ".shepherd.toml")
    return Profile(root, root, home, protected, (sub / ".env", sub / "key.pem"))


def _names(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def _outputs(box: Box, profile: Profile) -> Iterator[str]:
    """The output of each command that could be started."""
    for _ in range(STARTS // 2):
        try:
            program = Program(["sh", "-c", COMMAND], profile.cwd, dict(os.environ))
            with box.enter(program, profile) as boxed:
                ended = capture(boxed, 4 * PATIENCE)
        except (ToolError, OSError):
            continue  # what it had to mount was not there any more
        if ended.code != 125:
            yield ended.out


CASES = [(box, kind) for kind in ("direct", "layered") for box in BOXES]


@pytest.mark.long
@pytest.mark.parametrize(
    ("box", "kind"),
    [(box, kind) for box, kind in CASES if kind == "direct" or box.takes_layers],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_neighbour_that_swaps_directories_opens_nothing(
    box: Box, kind: str, tmp_path: Path
) -> None:
    need(box)
    profile = _swapped(tmp_path)
    before = _names(tmp_path / "outside")
    sub = profile.root / "work" / "sub"

    outputs: list[str] = []
    for link in (sub.with_name("link"), sub.with_name("old_root_link")):
        layer = Layer(tmp_path / "layers", profile.root) if kind == "layered" else None
        profile = replace(profile, layer=layer and layer.base)
        with flipping(sub, link) as flips:
            outputs += _outputs(box, profile)
            assert flips.count  # how many depends on the load
        if layer is not None:
            layer.drop()

    assert outputs
    assert not any(SECRET in output for output in outputs)
    assert _names(tmp_path / "outside") == before


def test_a_commit_beside_a_neighbour_that_swaps_directories_changes_nothing_outside(
    tmp_path: Path,
) -> None:
    root, outside = _swapped(tmp_path).root, tmp_path / "outside"
    before, committed = view(outside), 0

    with flipping(root / "work" / "sub", root / "work" / "link"):
        for number in range(4 * STARTS):
            layer = Layer(tmp_path / "layers", root)
            upper = layer.upper / "work" / "sub"
            (upper / "made").mkdir(parents=True)
            for name in ("secret", f"new{number}", ".env", "made/file"):
                (upper / name).write_text("changed", "utf-8")
            try:
                changes = read_effect(layer).changes
                if not any(change.deed is Deed.DELETED for change in changes):  # of the link itself
                    commit(layer, changes)
                    committed += 1
            except (OSError, ConflictError):
                continue  # the directory was a link
            finally:
                layer.drop()

    assert committed
    assert view(outside) == before


@pytest.mark.parametrize("name", [".shepherd.toml", "link"])
def test_nothing_is_moved_aside_outside(name: str, tmp_path: Path) -> None:
    profile = _swapped(tmp_path)
    work, outside = profile.root / "work", tmp_path / "outside"
    (work / "sub" / "link").symlink_to("target")
    watch = Watch(Profile(profile.root, profile.root, profile.home, (work / "sub" / name,)))
    (outside / name).write_text("kept", "utf-8")
    before = _names(outside)

    with flipping(work / "sub", work / "link"):
        for _ in range(STARTS):
            watch.undo(lambda _refusal: None)

    assert _names(outside) == before
    assert (outside / name).read_text("utf-8") == "kept"
