from pathlib import Path

import pytest


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory with a file in it."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "notes.txt").write_text("remember the milk\n")
    return directory
