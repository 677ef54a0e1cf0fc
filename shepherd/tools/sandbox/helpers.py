"""Starts a command in a box: a small program encloses itself, and then becomes the command."""

import contextlib
import functools
import importlib.util
import io
import json
import marshal
import os
import pkgutil
import secrets
import select
import shlex
import signal
import time
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import InspectLoader
from pathlib import Path, PurePosixPath

from shepherd.errors import ToolError
from shepherd.tools.sandbox import inside
from shepherd.tools.sandbox.inside.orders import SETUP_FAILED
from shepherd.tools.sandbox.profile import Limits, memory_bound
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


def joined(groups: Iterable[str], argv: Sequence[str]) -> list[str]:
    """The command line in these control groups; SIGINT and SIGTERM stay ignored.

    Who has forked before could leave processes outside of the groups, so it joins them first.
    """
    failure = f'{{ echo "the sandbox can\'t limit the command" >&2; exit {SETUP_FAILED}; }}'
    joins = [f"echo 0 > {shlex.quote(group)} || {failure}" for group in groups]
    return ["/bin/sh", "-c", "\n".join(["trap '' INT TERM", *joins, 'exec "$0" "$@"']), *argv]


_MOUNT = Path("/sys/fs/cgroup")
_SWAP = "memory.swap.max"
_ATTEMPTS = 40
_RETRY_DELAY = 0.025


_Limits = dict[str, int | None]
"""The files of a group that limit it, and their numbers; None for no limit."""


@contextmanager
def control_groups(limits: Limits) -> Generator[list[str]]:
    """The `cgroup.procs` files that a process has to join; none if groups can't be created.

    At the end, the remaining processes of the groups are killed if the kernel can kill a group.
    """
    made: list[Path] = []
    try:
        for parent, numbers in _places(limits):
            group = _make(parent, numbers)
            if group is not None:
                made.append(group)
        yield [str(group / "cgroup.procs") for group in made]
    finally:
        for group in made:
            _remove(group)


def remove_stale_groups() -> None:
    """Remove the groups of sessions that were killed."""
    for parent, _ in _places(Limits()):
        for group in parent.glob("shepherd-*-*"):
            owner = group.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):  # processes are in it, or it is another user's
                    group.rmdir()


def _places(limits: Limits) -> Iterator[tuple[Path, _Limits]]:
    """Where groups may be made: one place in version 2, one for each controller in version 1."""
    processes = limits.processes
    memory = None if limits.memory is None else memory_bound(limits.memory)
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _number, controllers, path = line.split(":", 2)  # `0::/user.slice`, `4:memory:/user.slice`
        own = path.lstrip("/")  # this process's group, below the mount
        if not controllers and (_MOUNT / "cgroup.controllers").exists():
            # without a limit of swap, the kernel would only move the memory there
            swap = None if memory is None else 0
            numbers = {"pids.max": processes, "memory.max": memory, _SWAP: swap}
            yield from ((parent, numbers) for parent in _unified(_MOUNT / own))
        elif controllers == "pids":
            yield _MOUNT / "pids" / own, {"pids.max": processes}
        elif controllers == "memory":
            yield _MOUNT / "memory" / own, {"memory.limit_in_bytes": memory}


def _unified(own: Path) -> list[Path]:
    """Beside this process's group, because a group with processes can't have groups with limits."""
    for parent in (own.parent, own):
        enabled = _read(parent / "cgroup.subtree_control").split()
        if {"memory", "pids"} <= set(enabled) and os.access(parent / "cgroup.procs", os.W_OK):
            return [parent]
    return []


def _make(parent: Path, numbers: _Limits) -> Path | None:
    """A new group with these limits; None if there is none, or if it can't be made."""
    group = parent / f"shepherd-{os.getpid()}-{secrets.token_hex(4)}"
    limits = {name: number for name, number in numbers.items() if number is not None}
    if not limits:
        return None
    try:
        group.mkdir()
    except OSError:
        return None  # not delegated to this user
    try:
        for name, number in limits.items():
            if name != _SWAP or (group / name).exists():  # not every kernel counts swap
                (group / name).write_text(str(number), "ascii")
    except OSError:
        _remove(group)
        return None
    return group


def _remove(group: Path) -> None:
    """Kill the processes of a group and remove it; gives up after a second."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", "ascii")
    for _attempt in range(_ATTEMPTS):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # killed processes take a moment to end
            time.sleep(_RETRY_DELAY)
        else:
            return


def _read(path: Path) -> str:
    """The text of a file; "" if it can't be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
