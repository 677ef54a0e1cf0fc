import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.tools.workshop import Workshop, open_workshop


@pytest.fixture(autouse=True)
def _ripgrep(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Have the installed `rg` on the PATH: a search that falls back to Python would pass unseen."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    assert shutil.which("rg", path=programs), "ripgrep is not installed; see requirements-dev.lock"
    monkeypatch.setenv("PATH", programs)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """Everything that no rule denies is allowed."""
    return open_workshop(tmp_path)
