import contextlib
from pathlib import Path

import pytest

from shepherd.own_programs import packaged_program
from tests.tools.workshop import Workshop, open_workshop


@pytest.fixture(autouse=True, scope="session")
def _ripgrep() -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """A search that falls back to Python would pass unseen.

    It does so where the programs of Shepherd lie in the working directory, as in this repository.
    """
    packaged_program.cache_clear()
    with contextlib.chdir("/"):
        assert packaged_program("rg"), "ripgrep is not installed; see requirements.lock"


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """Everything that no rule denies is allowed."""
    return open_workshop(tmp_path)
