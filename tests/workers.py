"""Workers that are forks of the process which hands the tests out.

It imports all modules of tests once, before the forks, and not once in each of them.
"""

import atexit
import gc
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.pathlib import import_path
from execnet import gateway_io
from execnet.gateway_base import ExecModel, Popen2IO


class ForkedWorker(Popen2IO):
    """A worker that waits for what xdist would send to a Python of its own."""

    def __init__(self, pid: int, pipes: tuple[int, int], execmodel: ExecModel) -> None:
        files = os.fdopen(pipes[0], "wb"), os.fdopen(pipes[1], "rb")
        super().__init__(*files, execmodel)  # type: ignore[no-untyped-call] - execnet's
        self._pid = pid

    def wait(self) -> int | None:
        with suppress(ChildProcessError):  # it was waited for
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _fork(others: Iterable[int]) -> tuple[int, tuple[int, int]]:
    """The process id of a new worker, and the pipes to it and from it.

    Those to `others` are closed in it: they end when nobody else holds them.
    """
    stdin, to_worker = os.pipe()
    from_worker, stdout = os.pipe()
    pid = os.fork()
    if pid == 0:
        for pipe in (to_worker, from_worker, *others):
            os.close(pipe)
        _work(stdin, stdout)
    os.close(stdin)
    os.close(stdout)
    return pid, (to_worker, from_worker)


def _work(stdin: int, stdout: int) -> NoReturn:
    """Become a worker, and never return: the frames below are those of the other process."""
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    try:
        with io.FileIO(0, closefd=False) as file:  # reads no byte more than the line
            exec(eval(file.readline()), {"__name__": "__main__"})
        threading._shutdown()  # type: ignore[attr-defined] - as Python does at its end
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    except BaseException:  # noqa: BLE001 - nothing may go on in the frames below
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def fork_workers(config: pytest.Config) -> None:
    """Import the modules of the tests, and fork the workers that the command line asks for."""
    tx: list[str] = config.getoption("tx", None) or []
    if "popen" not in tx:
        return
    _import_tests(config)
    gc.freeze()
    sys.stdout.flush()
    ready: list[tuple[int, tuple[int, int]]] = []
    for _ in tx:
        ready.append(_fork([pipe for _, pipes in ready for pipe in pipes]))
    start = gateway_io.create_io

    def create_io(spec: Any, execmodel: Any) -> Any:
        """A fork; a new Python in the place of one that has crashed."""
        return ForkedWorker(*ready.pop(), execmodel) if ready else start(spec, execmodel)

    gateway_io.create_io = create_io


def _import_tests(config: pytest.Config) -> None:
    ignored = [Path(path).absolute() for path in config.getoption("ignore") or ()]
    for name in config.args:
        path = config.invocation_params.dir / name.partition("::")[0]
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if not any(map(file.is_relative_to, ignored)):
                _import_test(file, config.rootpath)


def _import_test(file: Path, root: Path) -> None:
    """Import a module, unless it can't be: the workers will say why."""
    before = set(sys.modules)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            import_path(file, mode="importlib", root=root, consider_namespace_packages=False)
    except (Exception, pytest.skip.Exception):  # noqa: BLE001 - whatever it is, a worker meets it
        for name in set(sys.modules) - before:
            if name.startswith("tests."):
                del sys.modules[name]
