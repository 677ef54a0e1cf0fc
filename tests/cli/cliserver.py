"""A shared session, and a server with an agent, as programs."""

import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from tests.cli.program import Program
from tests.patience import PATIENCE


@contextmanager
def cliserver(program: Program, script: str, *options: str) -> Generator[str]:
    """Start a server, give its URL, and end it with a signal."""
    with _serving(program, script, "--cliserver", *options) as url:
        yield url


@contextmanager
def agent_server(program: Program, script: str, *options: str) -> Generator[str]:
    """The same for a server whose model uses Shepherd's tools; the URL ends with `/v1`."""
    with _serving(program, script, "--server", "--use-tools", *options) as url:
        yield url


@contextmanager
def _serving(program: Program, script: str, *options: str) -> Generator[str]:
    with program.start_scripted(script, "--port", "0", *options) as process:
        try:
            yield _url(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def _url(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if "Serving " in line:
            return line.split()[-1]
    raise AssertionError("the server did not start")
