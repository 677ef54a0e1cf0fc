"""Ending a program whose owner was killed and could not end it itself."""

import subprocess
from types import TracebackType
from typing import Self

_SHELL = "/bin/sh"
_SCRIPT = """trap '' HUP INT TERM
read -r _
kill -TERM "-$0" && sleep 1 && kill -KILL "-$0"
"""
"""Waits on a pipe that only the owner holds open; `$0` is the program's process group."""


class Guard:
    """While this lasts, the death of this process, however it comes, also ends a process group.

    A small shell waits for the end of a pipe. PR_SET_PDEATHSIG would reach only the program itself
    and not its children, is sent when a thread ends, and exists on Linux alone.
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
        """Let the group live on: what it left in the background is the user's."""
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
