"""A process that has imported the program and forks itself to run it: a start without imports.

`tests.forked` starts it. A request is JSON with `argv`, `cwd`, `env`, `terminal` and `namespaces`,
and comes with the three standard streams and a pipe. The answer is the process id; the pipe gets
the exit code. All workers of a run of tests connect to the same process.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import io
import json
import locale
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_REQUEST = 1 << 20
MAX_FILES = 4096
"""Descriptors above this one are not open."""
_LATER = ("shepherd.backends.tensorrt", "shepherd.cli.deploy.router")
"""Packages of the program that need what may not be installed."""


def import_program() -> None:
    """Import all modules of the program, and what they import at their first use."""
    import shepherd

    for module in pkgutil.walk_packages(shepherd.__path__, "shepherd."):
        if not module.name.startswith((*_LATER, "shepherd.__main__")):
            importlib.import_module(module.name)
    for name in ("llama_cpp", "numpy", "rich.markdown", "rich.syntax", "prompt_toolkit.shortcuts"):
        importlib.import_module(name)
    _prepare()


def _prepare() -> None:
    """Build what each start would build again: command line, models, key bindings, tools."""
    import typer
    import typer.main
    from prompt_toolkit.application import application
    from prompt_toolkit.key_binding.defaults import load_key_bindings
    from pydantic import BaseModel
    from typer.core import TyperGroup

    from shepherd.cli.options import app
    from shepherd.tools.registry import default_registry

    typer.main.get_command = functools.cache(typer.main.get_command)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group)
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    for parameter in [*group.params, *(p for c in commands if c for p in c.params)]:
        parameter.get_runtime_param()  # type: ignore[attr-defined] - of Typer's own parameters
    application.__dict__["load_key_bindings"] = load = functools.cache(load_key_bindings)
    _ = load().bindings
    _complete(BaseModel)
    for tool in default_registry():
        tool.spec()


def _complete(model: type["BaseModel"]) -> None:
    """Build what the program's models put off until they are first used."""
    for subclass in model.__subclasses__():
        if subclass.__module__.startswith("shepherd."):
            subclass.model_rebuild(raise_errors=False)
        _complete(subclass)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process look as if the program had been started with the request."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, MAX_FILES)
    if request["terminal"]:
        os.login_tty(0)
    if request["namespaces"]:
        _join(request["namespaces"])
    os.chdir(request["cwd"])
    _set_environment(request["env"])
    sys.argv[:] = request["argv"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_streams()


def _join(pid: int) -> None:
    """Enter the user and mount namespaces of a process; `os.setns` needs Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("user", "mnt")]:
        if libc.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)


def _set_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    if not {"LC_ALL", "LC_CTYPE", "LANG"} & env.keys():
        os.environ["LC_CTYPE"] = "C.UTF-8"  # as Python does at its start (PEP 538)
    locale.setlocale(locale.LC_CTYPE, "")
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in env
    folders = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:0] = folders
    importlib.invalidate_caches()
    for folder in folders:
        if (custom := Path(folder, "sitecustomize.py")).exists():
            runpy.run_path(str(custom))
    if env.get("PYTHONWARNINGS") == "error::ResourceWarning":
        warnings.simplefilter("error", ResourceWarning)
        sys.warnoptions.append("error::ResourceWarning")


def _open_streams() -> None:
    errors = "surrogateescape" if locale.setlocale(locale.LC_CTYPE) == "C.UTF-8" else "strict"
    sys.stdin = _stream(0, "r", errors)
    sys.stdout = _stream(1, "w", errors)
    sys.stderr = _stream(2, "w", "backslashreplace")


def _stream(number: int, mode: str, errors: str) -> io.TextIOWrapper:
    file = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - open until the end
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(file, encoding="utf-8", errors=errors, line_buffering=lines)


def _wake(_number: int, _frame: object) -> None:
    """Let the signal end the wait for requests, by way of the wake-up pipe."""


@contextlib.contextmanager
def alone() -> Generator[None]:
    """Let no other process start this one or end it meanwhile."""
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class Server:
    """Forks for each request, and reports how each fork ended, until all clients have closed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._clients: list[socket.socket] = []
        self._running: dict[int, int] = {}

    def serve(self) -> dict[str, Any] | None:
        """None at the end; in a fork: the request that it is for."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        while self._clients or not self._end():
            ready = select.select([self._listener, wake, *self._clients], [], [])[0]
            if wake in ready:
                os.read(wake, 4096)
                self._report()
            if self._listener in ready:
                self._clients.append(self._listener.accept()[0])
            for client in filter(ready.__contains__, [*self._clients]):
                if (request := self._answer(client)) is not None:
                    return request
        return None

    def _end(self) -> bool:
        """Take no more connections, unless one is waiting."""
        with alone():
            if select.select([self._listener], [], [], 0)[0]:
                return False
            Path(self._listener.getsockname()).unlink()
            return True

    def _answer(self, client: socket.socket) -> dict[str, Any] | None:
        """Fork for a request of the client, and give it the fork's id; in the fork: the request."""
        data, files, _, _ = socket.recv_fds(client, MAX_REQUEST, 4)
        if not data:
            self._clients.remove(client)
            client.close()
            return None
        pid = os.fork()
        if pid == 0:
            return self._become(json.loads(data), files[:3])
        self._running[pid] = files.pop()
        for number in files:
            os.close(number)
        with contextlib.suppress(BrokenPipeError):
            client.send(str(pid).encode())
        return None

    def _become(self, request: dict[str, Any], streams: list[int]) -> dict[str, Any]:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for opened in (self._listener, *self._clients):
            opened.detach()  # `become` closes it
        become(request, streams)
        return request

    def _report(self) -> None:
        for pid in [*self._running]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pipe = self._running.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(pipe)


class QuickEnd:
    """Ends a fork without freeing all that was imported, which would copy it into the fork first.

    It comes after all other work at the exit. Without a `status`, Python ends as ever.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        atexit.register(self._leave)  # the first to be registered is the last to be called

    def exit(self, main: Callable[[], int]) -> NoReturn:
        """Exit with the status of the program."""
        try:
            self.status = main()
        except SystemExit as ended:
            self.status = ended.code if isinstance(ended.code, int) else None
            raise
        sys.exit(self.status)

    def _leave(self) -> None:
        if self.status is None:
            return
        with contextlib.suppress(OSError, ValueError):  # Python reports what can't be written
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.status)


def run() -> None:
    """Serve on the socket whose number is the only argument."""
    end = QuickEnd()
    import_program()
    gc.collect()
    gc.freeze()
    request = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is not None:
        from shepherd.cli.app import main

        if "PYTHONWARNINGS" in request["env"]:  # it shows what was left open to the end
            sys.exit(main())
        end.exit(main)


if __name__ == "__main__":
    run()
