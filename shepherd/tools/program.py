"""A program to run, as data."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

_USUAL = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TZ", "USER")


def usual_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that every program may have; none of them is a secret."""
    usual = {name: environment[name] for name in _USUAL if name in environment}
    return {"TMPDIR": environment.get("TMPDIR") or tempfile.gettempdir(), **usual}


class Startable(Protocol):
    """A program that can be started once."""

    def start(self) -> subprocess.Popen[bytes]:
        """The process, in a session of its own and with pipes for its output.

        Raises OSError if it can't be started.
        """
        ...


class Program(Struct, frozen=True):
    """A command line and its directory; without `stdin` it reads from /dev/null.

    The program inherits `pass_fds` in addition to the standard descriptors.
    """

    argv: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] | None = None
    stdin: BinaryIO | None = None
    pass_fds: tuple[int, ...] = ()

    def start(self) -> subprocess.Popen[bytes]:
        """See `Startable.start`."""
        return subprocess.Popen(
            self.argv,
            cwd=self.cwd,
            env=self.environment,
            stdin=self.stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=self.pass_fds,
        )
