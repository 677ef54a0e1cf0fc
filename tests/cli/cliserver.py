"""A shared session as a program."""

import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from tests.cli.program import Program
from tests.patience import PATIENCE


@contextmanager
def cliserver(program: Program, script: str, *options: str) -> Generator[str]:
    """Start a server, give its URL, and end it with a signal."""
    arguments = ("--cliserver", "--port", "0", *options)
    with program.start_scripted(script, *arguments) as process:
        try:
            yield _url(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def _url(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if "Serving session" in line:
            return line.split()[-1]
    raise AssertionError("the server did not start")
