from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "todo.txt").write_text("buy milk\n")
    return Program(tmp_path / "home", tmp_path / "work")
