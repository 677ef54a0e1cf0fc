import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import Terminal

Start = Callable[..., Terminal]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The directory in which the program is started."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error::ResourceWarning",
    }


@pytest.fixture
def start(tmp_path: Path, work: Path, env: dict[str, str]) -> Iterator[Start]:
    """Starts `shepherd` on a script (or on the built-in model with `script=None`)."""
    with ExitStack() as stack:

        def begin(script: str | None, *arguments: str, **options: Any) -> Terminal:
            argv = [str(Path(sys.executable).with_name("shepherd")), *arguments]
            if script is not None:
                path = tmp_path / "script.txt"
                path.write_text(script)
                argv += ["--model", f"script:{path}"]
            extra = options.pop("env", {})
            terminal = Terminal(argv, work, env | extra, **options)
            stack.enter_context(terminal)
            return terminal

        yield begin
