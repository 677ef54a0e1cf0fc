"""Ends a program if this process is killed and can't end it."""

import subprocess
from types import TracebackType
from typing import Self

_SHELL = "/bin/sh"
_SCRIPT = """trap '' HUP INT TERM
read -r _
kill -TERM "-$0" && sleep 1 && kill -KILL "-$0"
"""
"""Waits on a pipe that only this process holds open; `$0` is the program's process group."""


class Guard:
    """A context in which the death of this process also ends a process group.

    A small shell waits for the end of a pipe. PR_SET_PDEATHSIG is not sufficient: it reaches only
    the program and not its children. It is sent when a thread ends, and only Linux has it.
    """

    def __init__(self, group: int) -> None:
        self._shell = subprocess.Popen(
            [_SHELL, "-c", _SCRIPT, str(group)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the group alive: its background processes belong to the user."""
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
