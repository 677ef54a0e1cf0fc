"""Passes a helper program to another interpreter, as code and not as a file.

An earlier command could change a file, and a file takes longer to find and read.
"""

import contextlib
import functools
import importlib.util
import json
import marshal
import os
import select
import signal
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.abc import InspectLoader
from types import CodeType

from shepherd.errors import ToolError
from shepherd.tools.sandbox.view.toolchains import interpreter

_PACKAGE = "shepherd.tools.sandbox.inside"
_NEEDED = {
    "nest": ("start", "orders", "native", "namespaces", "nest"),
    "launch": ("start", "orders", "launch"),
    "enclose": ("start", "orders", "native", "namespaces", "processes", "enclose"),
}
_BOOT = """
import marshal, os, sys
descriptor = int(sys.argv[1])
os.lseek(descriptor, 0, 0)
with open(descriptor, "rb", buffering=0) as file:
    codes, name, values = marshal.loads(file.read())
for full, code in codes:
    module = sys.modules[full] = type(sys)(full)
    exec(code, module.__dict__)
    parent, _, short = full.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], short, module)
sys.modules[name].main(**values)
"""

_TIMEOUT = 5.0
_MAX_INFO = 65_536


def helper_argv(descriptor: int) -> list[str]:
    """The command line that runs the result of `payload` from a descriptor."""
    return [str(interpreter()), "-I", "-S", "-c", _BOOT, str(descriptor)]


def payload(module: str, values: Mapping[str, object]) -> bytes:
    """The code that calls `main` of a module with these arguments."""
    codes = [(_PACKAGE, compile("", _PACKAGE, "exec"))]
    codes += [(_full(name), _code(name)) for name in _NEEDED[module]]
    return marshal.dumps((codes, _full(module), dict(values)))


def _full(module: str) -> str:
    return f"{_PACKAGE}.{module}"


@functools.cache
def _code(module: str) -> CodeType:
    spec = importlib.util.find_spec(_full(module))
    loader = None if spec is None else spec.loader
    code = loader.get_code(_full(module)) if isinstance(loader, InspectLoader) else None
    if code is None:
        raise ToolError("the sandbox's helper program can't be read")
    return code


@contextmanager
def memory_file(content: bytes) -> Generator[int]:
    """A descriptor to read `content` from."""
    descriptor = os.memfd_create("shepherd")
    with contextlib.closing(os.fdopen(descriptor, "w+b", buffering=0)) as file:
        file.write(content)
        file.seek(0)
        yield descriptor


def await_first_process(channel: socket.socket) -> None:
    """Wait until the process that a helper reported as `{"child-pid": N}` is dead.

    It is the first process of the box; all others inside die with it.
    """
    channel.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        if text := channel.recv(_MAX_INFO):
            _end(int(json.loads(text)["child-pid"]))


def _end(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return  # it has ended
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(_TIMEOUT * 1000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            poll.poll(_TIMEOUT * 1000)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
