"""The programs that Shepherd itself starts, outside of the sandbox."""

import os
import shlex
import shutil
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path

_SYSTEM = (
    *("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin"),
    *("/opt/homebrew/bin", "/usr/local/bin", "/usr/local/sbin"),
)


@cache
def own_program(name: str) -> str | None:
    """The path of a program in the directories of the system; None if it is not installed.

    PATH is not read: a project's directory may be in it, and what a model has written there would
    run outside of the sandbox. For the same reason it is looked up once.
    """
    return _first(name, _SYSTEM)


def path_outside(directory: Path, path: str | None = None) -> str:
    """A PATH (by default that of this process) without `directory` and what is below it."""
    entries = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    absolute = [entry for entry in entries if entry.startswith("/")]
    return os.pathsep.join(entry for entry in absolute if not _is_in(entry, directory))


@cache
def packaged_program(name: str) -> str | None:
    """The path of a program that was installed with Shepherd, else that of the system's.

    If Shepherd itself lies in the working directory, where a model may change it, the program is
    copied to memory.
    """
    scripts = sysconfig.get_path("scripts")
    path = _first(name, (scripts, *_SYSTEM))
    own = shutil.which(name, path=scripts) if path is None else None
    if own is not None and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
        Path(f"/proc/self/fd/{descriptor}").write_bytes(Path(own).read_bytes())
        return f"/proc/{os.getpid()}/fd/{descriptor}"
    return path


def find_editor(directory: Path) -> None:
    """Name the user's editor by its full path, so that none in `directory` is started."""
    for name in ("VISUAL", "EDITOR"):
        with suppress(ValueError):  # its quotes don't match
            words = shlex.split(os.environ.pop(name, ""))
            program = shutil.which(words[0], path=path_outside(directory)) if words else None
            if program is not None:
                os.environ[name] = shlex.join([program, *words[1:]])


def _first(name: str, directories: tuple[str, ...]) -> str | None:
    """The program in the first directory that has it, outside of the working directory."""
    return shutil.which(name, path=path_outside(Path.cwd(), os.pathsep.join(directories)))


def _is_in(entry: str, directory: Path) -> bool:
    """Whether an entry of PATH leads into the directory, also by links."""
    top = directory.resolve()
    # all programs are below the root, which is never a working directory of the sandbox
    return top != Path("/") and Path(entry).resolve().is_relative_to(top)
