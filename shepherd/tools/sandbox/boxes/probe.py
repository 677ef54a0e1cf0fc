"""Tests a box: an attack must fail in it, and an ordinary command must run."""

import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Attempt, Box
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.toolchains import real

_TIMEOUT = 10.0
_MAX_REASON = 300
_ATTACK = """
import os, sys
import _socket
outside, secret, protected, made, port = sys.argv[1:]
def attempt(action, *arguments):
    try:
        return action(*arguments)
    except OSError:
        return None
def write(path):
    os.write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b"changed")
def read(path):
    os.write(1, os.read(os.open(path, os.O_RDONLY), 100))  # `print` would lose it at `execv`
def connect(family, address):
    _socket.socket(family, _socket.SOCK_STREAM).connect(address)
attempt(write, outside)
attempt(write, protected)
attempt(read, secret)
attempt(connect, _socket.AF_INET, ("127.0.0.1", int(port)))
attempt(connect, _socket.AF_UNIX, outside + ".socket")
write(made)
os.execv("/bin/sh", ["sh", "-c", "echo ran"])
"""


class Captured(Struct, frozen=True):
    """The output and the exit of a program; `code` is negative if a signal killed it."""

    code: int
    out: str
    err: str


def capture(program: Program, timeout: float) -> Captured:
    """Run the program for up to `timeout` seconds; raises subprocess.TimeoutExpired."""
    with program.start() as process:
        try:
            texts = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    out, err = (text.decode("utf-8", "replace") for text in texts)
    return Captured(process.returncode, out, err)


class _Canaries(Struct, frozen=True):
    """Files and sockets outside and inside the box, with checks for access to them."""

    base: Path
    secret: str
    tcp: socket.socket
    unix: socket.socket

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def profile(self) -> Profile:
        protected, hidden = self.root / "protected", self.root / "secret"
        return Profile(self.root, self.root, Path.home(), (protected,), (hidden,))

    def program(self) -> Program:
        """The attack, with the paths and the port that it tries."""
        paths = [
            self.base / "outside",
            *(self.root / n for n in ("secret", "protected", "work/made")),
        ]
        port = str(self.tcp.getsockname()[1])
        python = str(real(Path(sys.executable)))
        argv = [python, "-I", "-S", "-c", _ATTACK, *map(str, paths), port]
        return Program(argv, self.root)

    def failures(self, output: str) -> Iterator[str]:
        """What the attack could do that it must not, and what it could not do that it must."""
        if (self.base / "outside").read_text("utf-8") != "kept":
            yield "a file outside of the working directory was written"
        if (self.root / "protected").read_text("utf-8") != "kept":
            yield "a protected file was written"
        if self.secret in output:
            yield "a hidden file was read"
        if _reached(self.tcp):
            yield "a network socket was reached"
        if _reached(self.unix):
            yield "a local socket was reached"
        if not (self.root / "work" / "made").exists() or "ran" not in output:
            yield "an ordinary command failed"


def probe(box: Box) -> Attempt:
    """Run an attack in the box; takes a few starts of a program."""
    try:
        failures, errors = _attack(box)
    except (ToolError, OSError, subprocess.TimeoutExpired) as error:
        failures, errors = [str(error)], ""
    if not failures:
        return Attempt(box.name, ok=True)
    reason = "; ".join(filter(None, [*failures, errors[:_MAX_REASON]]))
    return Attempt(box.name, ok=False, reason=reason, advice=_ADVICE.get(box.name, ""))


def _attack(box: Box) -> tuple[list[str], str]:
    """Run the attack; what is wrong with the box, and what the program wrote to stderr."""
    with ExitStack() as resources:
        base = resources.enter_context(tempfile.TemporaryDirectory(prefix="shepherd-probe-"))
        canaries = _Canaries(
            real(Path(base)),
            secrets.token_hex(8),
            resources.enter_context(socket.create_server(("127.0.0.1", 0))),  # any free port
            resources.enter_context(socket.socket(socket.AF_UNIX)),
        )
        _prepare(canaries)
        program = resources.enter_context(box.enter(canaries.program(), canaries.profile))
        ended = capture(program, _TIMEOUT)
        return list(canaries.failures(ended.out)), ended.err.strip()


def _prepare(canaries: _Canaries) -> None:
    """Make the files and sockets that the attack looks for."""
    (canaries.root / "work").mkdir(parents=True)
    (canaries.base / "outside").write_text("kept", "utf-8")
    (canaries.root / "protected").write_text("kept", "utf-8")
    (canaries.root / "secret").write_text(canaries.secret, "utf-8")
    canaries.unix.bind(str(canaries.base / "outside.socket"))
    canaries.unix.listen()
    for listener in (canaries.tcp, canaries.unix):
        listener.setblocking(False)  # else `_reached` would wait for a connection


def _reached(listener: socket.socket) -> bool:
    """Whether somebody has connected to the socket."""
    try:
        connection, _address = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


_ADVICE = {
    "bubblewrap": "install bubblewrap (Debian, Ubuntu, Fedora: the package bubblewrap)",
    "landlock": "use Linux 5.13 or newer with Landlock enabled (lsm=landlock,…)",
}
"""What the user can do so that a box works, by its name."""
