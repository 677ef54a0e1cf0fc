"""Starts the program in a fork of a process that has imported it already.

What runs is the same, but for the imports, which take most of a start. Tests of the start itself,
of the installed command and of other locales start it from nothing (`Popen` with `SHEPHERD`).
"""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests import forkserver

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))
_KILLED = -9

_FORKING = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
status, report = os.pipe()
request = dict(argv=[{program!r}, *sys.argv[1:]], cwd=os.getcwd(), env=dict(os.environ))
request |= dict(terminal=False, namespaces=0)
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, report])
connection.recv(32)
os.close(report)
sys.exit(int(os.read(status, 32) or 1))
"""


def write_forking(path: Path) -> None:
    """Write a program for shells that runs Shepherd in a fork; signals do not get to it."""
    text = _FORKING.format(python=sys.executable, address=fork_server().address, program=SHEPHERD)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


class ForkServer:
    """A connection to the process that forks, which lives as long as it has one."""

    def __init__(self) -> None:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        self.address = str(Path(tempfile.gettempdir(), f"shepherd-fork-{run}"))
        self._socket = _connect(self.address)
        self._lock = threading.Lock()
        atexit.register(self._socket.close)

    def fork(self, request: Mapping[str, Any], files: list[int]) -> int:
        """The id of a process that runs the program, see `tests.forkserver`."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            reply = self._socket.recv(32)
        if not reply:
            raise RuntimeError("the process that forks the program has ended")
        return int(reply)


def _connect(address: str) -> socket.socket:
    """Connect to the process that forks for all workers of this run; start it if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with forkserver.alone():
        try:
            connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            Path(address).unlink(missing_ok=True)
            _start(address)
            connection.connect(address)
    return connection


def _start(address: str) -> None:
    """Start the process; it takes connections at once, and requests when it has imported all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        listener.set_inheritable(True)
        command = [sys.executable, "-P", forkserver.__file__, str(listener.fileno())]
        os.posix_spawn(sys.executable, command, os.environ)


@cache
def fork_server() -> ForkServer:
    """The connection of this process, made when it is first needed."""
    return ForkServer()


class ForkedProgram(subprocess.Popen[Any]):
    """`subprocess.Popen` of the program; with `terminal`, it makes its stdin its own terminal.

    With `namespaces`, it joins the user and mount namespaces of the process with this id.
    It overrides private methods of CPython's Popen: how a process is started and waited for.
    """

    def __init__(
        self, argv: Sequence[str], *, terminal: bool = False, namespaces: int = 0, **options: Any
    ) -> None:
        self._terminal = terminal
        self._namespaces = namespaces
        self._status, self._to_report = os.pipe2(os.O_CLOEXEC)
        self._waiting = threading.Lock()
        super().__init__(argv, **options)

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        child = (pipes[0], pipes[3], pipes[5])
        streams = [number if given == -1 else given for number, given in enumerate(child)]
        request = {
            "argv": list(args),
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "terminal": self._terminal,
            "namespaces": self._namespaces,
        }
        self.pid = fork_server().fork(request, [*streams, self._to_report])
        self._child_created = True
        os.close(self._to_report)
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined] - a method of CPython's Popen

    def _internal_poll(self, **_: Any) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._read_status()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._read_status()

    def _read_status(self) -> int:
        with self._waiting:
            code: int | None = self.returncode
            if code is None:
                self.returncode = code = int(os.read(self._status, 32) or _KILLED)
                os.close(self._status)
            return code


def start_forked(argv: Sequence[str], env: Mapping[str, str], **options: Any) -> Any:
    """A `Popen` of the program in a fork; started from nothing where `env` sets the encoding."""
    if "PYTHONIOENCODING" in env:
        return subprocess.Popen(argv, env=env, **options)
    return ForkedProgram(argv, env=env, **options)


def run_forked(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdin: str = "",
    timeout: float | None = None,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """`subprocess.run` of the program with its output captured as text."""
    pipe = subprocess.PIPE
    options |= {"stdout": pipe, "stderr": pipe, "text": True, "encoding": "utf-8"}
    with start_forked(argv, env, stdin=pipe, **options) as process:
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
