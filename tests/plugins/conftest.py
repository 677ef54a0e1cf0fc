"""The sample package, installed where the program finds it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import SHEPHERD, run_forked
from tests.patience import PATIENCE
from tests.plugins.wheel import install, package_files

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory in which the wheel of the sample package is installed."""
    return install(tmp_path, package_files())


@pytest.fixture
def env(tmp_path: Path, site: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.fixture
def run(tmp_path: Path, env: dict[str, str]) -> Run:
    """Runs the program."""
    (tmp_path / "work").mkdir()

    def begin(*arguments: str, script: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
        argv = [SHEPHERD, *arguments]
        if script:
            (tmp_path / "script").write_text(script)
            argv += ["--model", f"script:{tmp_path / 'script'}"]
        return run_forked(argv, env | more, timeout=3 * PATIENCE, cwd=tmp_path / "work")

    return begin
