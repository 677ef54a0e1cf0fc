"""Private files, written atomically: a reader sees the complete old or new content."""

import contextlib
import fcntl
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.errors import ConfigError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFTOVER = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FILES = Path("/proc/self/fd")
_TOKEN = "[0-9a-f]{12}"
_TOKEN_BYTES = 6
_MAX_STEM = 200  # bytes; a file name may have 255


@dataclass(frozen=True, slots=True)
class Attributes:
    """Mode and owner of the new file; without a mode it gets 0666 minus the umask."""

    mode: int | None = None
    owner: tuple[int, int] | None = None


def replace_at(directory: int, name: str, data: bytes, attributes: Attributes) -> None:
    """Make `data` the content of the file `name` in the directory with this descriptor.

    A reader sees the old content or the new one. If the system supports it, the new file has no
    name until it is complete, so a killed process leaves nothing behind. Raises OSError.
    """
    created_mode = 0o666 if attributes.mode is None else 0o600
    descriptor, temporary = _new_file(directory, name, created_mode)
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(data)
            file.flush()
            _set_attributes(file.fileno(), attributes)
            os.fsync(file.fileno())
            if not temporary:
                temporary = _temporary_name(name)
                source = str(_OPEN_FILES / str(file.fileno()))
                os.link(source, temporary, dst_dir_fd=directory, follow_symlinks=True)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            if temporary:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
            raise


def remove_leftovers(directory: int, name: str) -> None:
    """Delete the temporary files of killed writers of `name`; a running writer holds a lock."""
    leftover = re.compile(rf"{re.escape(_stem(name))}\.{_TOKEN}")
    for candidate in filter(leftover.fullmatch, os.listdir(directory)):
        with contextlib.suppress(OSError):
            _remove_unlocked(directory, candidate)


def _remove_unlocked(directory: int, name: str) -> None:
    descriptor = os.open(name, _LEFTOVER, dir_fd=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(descriptor)


def _new_file(directory: int, name: str, mode: int) -> tuple[int, str]:
    """A new file, open for writing: its descriptor, and its name if it must have one."""
    if hasattr(os, "O_TMPFILE") and _OPEN_FILES.is_dir():
        with contextlib.suppress(OSError):  # not every file system has unnamed files
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            return os.open(".", flags, mode, dir_fd=directory), ""
    temporary = _temporary_name(name)
    return os.open(temporary, _NEW_FILE, mode, dir_fd=directory), temporary


def _temporary_name(name: str) -> str:
    return f"{_stem(name)}.{secrets.token_hex(_TOKEN_BYTES)}"


def _stem(name: str) -> str:
    return "." + os.fsencode(name)[:_MAX_STEM].decode("utf-8", "ignore")


def _set_attributes(descriptor: int, attributes: Attributes) -> None:
    if attributes.owner is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, *attributes.owner)
    if attributes.mode is not None:
        os.fchmod(descriptor, attributes.mode)


def make_private_directory(path: Path) -> None:
    """Create `path` for this user only, and its parents as usual; an existing one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: str | bytes) -> None:
    """Replace the file at `path` atomically; only this user can read it, from its creation on.

    A symbolic link is followed and kept. Temporary files of killed writers are removed.
    """
    target = path.resolve()
    make_private_directory(target.parent)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_leftovers(directory, target.name)
        data = content.encode() if isinstance(content, str) else content
        replace_at(directory, target.name, data, Attributes(mode=0o600))
    finally:
        os.close(directory)


def read_text(path: Path, limit: int) -> str:
    """The text of the file at `path`, "" for the null device.

    Raises FileNotFoundError. Raises ConfigError if the file can't be read, is longer than `limit`
    bytes, or is not a regular file (reading a pipe would block).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            _check_kind(path, os.fstat(descriptor))
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ConfigError(f"{path}: too large for settings: over {limit} bytes")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error


def parse_toml(place: str | Path, text: str) -> dict[str, Any]:
    """The data of a TOML file; raises ConfigError that names the `place`."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: not valid TOML: {error}") from error


def _check_kind(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode) or os.path.samestat(status, Path(os.devnull).stat()):
        return
    raise ConfigError(f"{path}: is not a regular file; put one there, or remove it")


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock of the file at `path`; waits until other processes release it."""
    target = path.resolve()
    make_private_directory(target.parent)
    lock = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
