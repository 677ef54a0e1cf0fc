"""Starts a command in a box: a small program encloses itself, and then becomes the command."""

import contextlib
import functools
import importlib.util
import io
import json
import marshal
import os
import pkgutil
import select
import signal
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.abc import InspectLoader
from pathlib import PurePosixPath

from shepherd.errors import ToolError
from shepherd.tools.sandbox import inside
from shepherd.tools.sandbox.view.toolchains import interpreter

_BOOT = """
import marshal, os, sys, zipimport
program = "/proc/self/fd/" + sys.argv[1]
sys.path.insert(0, program)
from {module} import {main}
arguments = marshal.loads(zipimport.zipimporter(program).get_data("arguments"))
# the command must not inherit the descriptor, whose number then stands for another file
sys.path.remove(program)
os.close(int(sys.argv[1]))
{main}(**arguments)
"""
_TIMEOUT = 5.0
_MAX_INFO = 65_536


def helper_argv(main: Callable[..., None], descriptor: int) -> list[str]:
    """The command line that calls `main`, a function in `inside`, with a `payload`."""
    boot = _BOOT.format(module=main.__module__, main=main.__name__)
    return [str(interpreter()), "-I", "-S", "-c", boot, str(descriptor)]


def payload(arguments: Mapping[str, object]) -> bytes:
    """A zip file with the modules of `inside`, and the arguments of a function there.

    A helper can't read Shepherd's own files in a box, and a model may have changed them.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in _compiled_modules().items():
            archive.writestr(name, code)
        archive.writestr("arguments", marshal.dumps(dict(arguments)))
    return content.getvalue()


@functools.cache
def _compiled_modules() -> Mapping[str, bytes]:
    """The files of the package `inside` and of those around it, which stay empty."""
    folder = inside.__name__.replace(".", "/")
    packages = [folder, *map(str, PurePosixPath(folder).parents)][:-1]  # without "."
    files = {f"{package}/__init__.py": b"" for package in packages}
    for module in pkgutil.iter_modules(inside.__path__):
        name = f"{inside.__name__}.{module.name}"
        spec = importlib.util.find_spec(name)
        loader = None if spec is None else spec.loader
        code = loader.get_code(name) if isinstance(loader, InspectLoader) else None
        if code is None:
            raise ToolError("the sandbox's helper program can't be read")
        header = importlib.util.MAGIC_NUMBER + bytes(12)  # flags, date and size of the source
        files[f"{folder}/{module.name}.pyc"] = header + marshal.dumps(code)
    return files


@contextmanager
def memory_file(content: bytes) -> Generator[int]:
    """A descriptor to read `content` from."""
    descriptor = os.memfd_create("shepherd")
    with contextlib.closing(os.fdopen(descriptor, "w+b", buffering=0)) as file:
        file.write(content)
        file.seek(0)
        yield descriptor


@contextmanager
def first_process() -> Generator[int]:
    """A descriptor to which a helper reports a process as `{"child-pid": N}`.

    It is the first process of the box; all others inside die with it. The end waits for its death.
    """
    ours, theirs = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.set_blocking(ours, False)  # a helper that failed before its report sends none
        with os.fdopen(ours, "rb", buffering=0) as channel:
            if text := channel.read(_MAX_INFO):
                _await_end(int(json.loads(text)["child-pid"]))


def _await_end(process: int) -> None:
    """Wait for the end of a process, which is killed if it takes too long."""
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
    except ProcessLookupError:  # it ended just before the signal
        return
    finally:
        os.close(descriptor)


_VARIABLES = ("LANG", "LANGUAGE", "LD_LIBRARY_PATH")


def helper_environment() -> dict[str, str]:
    """The variables that an interpreter needs, and no others, because a command may read them."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _VARIABLES or name.startswith("LC_")
    }
