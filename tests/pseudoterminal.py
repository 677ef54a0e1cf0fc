"""Programs on a pseudo-terminal of their own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.forked import SHEPHERD, ForkedProgram

_LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"


def start_on(
    terminal: int, argv: Sequence[str], cwd: Path, env: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a program that is controlled from `terminal`, the side that programs have.

    The program makes it its own after the start: Python code between fork and exec may hang where
    there are threads, and is warned about.
    """
    if argv[0] == SHEPHERD and "PYTHONIOENCODING" not in env:
        return ForkedProgram(
            argv,
            terminal=True,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=cwd,
            env=dict(env),
        )
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LOGIN, *argv],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=cwd,
        env=dict(env),
    )
