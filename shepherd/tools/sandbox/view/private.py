"""The files that a box creates for one command and removes afterwards."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

_PREFIX, _LOCK = "shepherd-box-", "lock"
_ATTEMPTS = 20
_RETRY_DELAY = 0.05


class PrivateFiles(Struct, frozen=True):
    """A temporary and a home directory, and the empty file and directory that hide others."""

    base: Path

    @property
    def temp(self) -> Path:
        """The command's /tmp."""
        return self.base / "tmp"

    @property
    def home(self) -> Path:
        """The command's home directory where nothing can be mounted on the real one."""
        return self.base / "home"

    @property
    def empty_file(self) -> Path:
        """The empty file that covers hidden files."""
        return self.base / "empty"

    @property
    def empty_directory(self) -> Path:
        """The empty directory that covers hidden directories."""
        return self.base / "nothing"

    @property
    def new_root(self) -> Path:
        """The directory in which the command's root is built."""
        return self.base / "root"


def remove_stale() -> None:
    """Remove the files that killed sessions of this user left behind."""
    for base in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if base.lstat().st_uid == os.getuid():
                with (base / _LOCK).open("r+b") as lock:
                    # raises an error if a session that is alive holds it
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(base)


@contextmanager
def private_files() -> Generator[PrivateFiles]:
    """Create them in the system's temporary directory, and remove everything at the end."""
    files = PrivateFiles(Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))))
    unlocked = files.base / f"{_LOCK}.new"
    with unlocked.open("w+b") as lock:  # until the end, by which `remove_stale` knows it
        fcntl.flock(lock, fcntl.LOCK_EX)
        # under its own name a lock is always held, or another session would see a stale directory
        unlocked.rename(files.base / _LOCK)
        try:
            files.temp.mkdir(mode=0o700)
            files.home.mkdir(mode=0o700)
            files.new_root.mkdir(mode=0o700)
            files.empty_directory.mkdir(mode=0o555)
            files.empty_file.touch(mode=0o444)
            yield files
        finally:
            remove_tree(files.base)


def remove_tree(base: Path) -> None:
    """Remove a directory regardless of its entries' modes; raises OSError if that fails."""
    for attempt in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            try:
                shutil.rmtree(base, onerror=partial(_open_up, base))
            except RecursionError:
                # deeper than Python's stack; rm does not recurse, but leaves what is closed
                subprocess.run(
                    ["/bin/rm", "-rf", "--", str(base)], capture_output=True, check=False
                )
                continue
            except OSError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_RETRY_DELAY)
                continue
        return


def _open_up(base: Path, function: Callable[..., object], path: str, _error: object) -> None:
    """Remove `path`, which could not be removed, after adding the missing permissions.

    If another process has removed `base`, the error is that of `base` itself, whose parent belongs
    to everybody.
    """
    place = Path(path)
    if place != base:
        place.parent.chmod(0o700)
    if place.is_dir() and not place.is_symlink():
        place.chmod(0o700)
        # what could not be looked into may hold more of its kind
        shutil.rmtree(place, onerror=partial(_open_up, base) if function is os.open else None)
    else:
        place.unlink(missing_ok=True)


_SOCKETS_NAMES = """
DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DISPLAY DOCKER_HOST GPG_AGENT_INFO
SSH_AGENT_PID SSH_AUTH_SOCK TMUX WAYLAND_DISPLAY XAUTHORITY XDG_RUNTIME_DIR
"""
_SOCKETS = tuple(_SOCKETS_NAMES.split())
"""Variables with sockets that a box blocks."""


def boxed_environment(environment: Mapping[str, str] | None, temp: str) -> dict[str, str]:
    """The variables, with `temp` for temporary files and without those that name sockets."""
    variables = dict(os.environ if environment is None else environment)
    for name in _SOCKETS:
        variables.pop(name, None)
    return {**variables, "TMPDIR": temp, "TMP": temp, "TEMP": temp}
