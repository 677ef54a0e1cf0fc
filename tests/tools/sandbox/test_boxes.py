"""What holds and what works in every box."""

from pathlib import Path

import pytest

from shepherd.tools.sandbox.box import Box
from shepherd.tools.sandbox.find import find_box
from tests.tools.sandbox.boxes import BOXES, make_profile, run_in


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """Each box that works here."""
    return request.param


def test_the_working_directory_can_be_written(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)

    ended = run_in(box, profile, "cd src && echo text > new && mkdir d && mv new d/ && cat d/new")

    assert (ended.code, ended.out, ended.err) == (0, "text\n", "")
    assert (profile.root / "src" / "d" / "new").read_text("utf-8") == "text\n"


def test_what_is_outside_can_not_be_written(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    (tmp_path / "outside").write_text("kept", "utf-8")

    run_in(box, profile, f"echo changed > {tmp_path}/outside; echo new > {tmp_path}/made")

    assert (tmp_path / "outside").read_text("utf-8") == "kept"
    assert not (tmp_path / "made").exists()


def test_hidden_files_are_not_read_and_protected_ones_are(box: Box, tmp_path: Path) -> None:
    ended = run_in(box, make_profile(tmp_path), "cat .env; cat .git/config; echo x > .git/config")

    assert "canary" not in ended.out
    assert "[core]" in ended.out
    assert (tmp_path / "project" / ".git" / "config").read_text("utf-8") == "[core]\n"


def test_some_box_works_here() -> None:
    found = find_box()

    assert found.box is not None, found.tried
