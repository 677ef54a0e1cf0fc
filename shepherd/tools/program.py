"""A program to run, as data."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class Startable(Protocol):
    """What can be started once."""

    def start(self) -> subprocess.Popen[bytes]:
        """The process, in a session of its own and with pipes for its output.

        Raises OSError if it can't be started.
        """
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """What to run and where; without `stdin` it reads from /dev/null.

    `pass_fds` are the descriptors that it inherits besides the standard ones.
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
