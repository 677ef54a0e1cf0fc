"""Files of the user: written atomically and privately, read with a limit, searched for a line.

A reader of a file that is being written sees its complete old or new content.
"""

import contextlib
import fcntl
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from shepherd.errors import ConfigError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFTOVER = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FILES = Path("/proc/self/fd")
_TOKEN = "[0-9a-f]{12}"
_TOKEN_BYTES = 6
_MAX_STEM = 200  # bytes; a file name may have 255

MAX_FILE_BYTES = 262_144
"""The maximum size of a settings file in bytes."""

MAX_PARSES = 300
"""The maximum number of parses to find one line; after that, the nearest known line counts."""

Key = str | int


class Attributes(Struct, frozen=True):
    """Mode and owner of the new file; without a mode it gets 0666 minus the umask."""

    mode: int | None = None
    owner: tuple[int, int] | None = None


def replace_at(
    directory: int, name: str, data: bytes, attributes: Attributes, *, durable: bool = True
) -> None:
    """Make `data` the content of the file `name` in the directory with this descriptor.

    A reader sees the old content or the new one. If the system supports it, the new file has no
    name until it is complete, so a killed process leaves nothing behind. If it is not `durable`,
    a crash of the system may leave an empty file until `os.sync`. Raises OSError.
    """
    # a file that gets a mode later is private until then
    created_mode = 0o666 if attributes.mode is None else 0o600
    descriptor, temporary = _new_file(directory, name, created_mode)
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # so that no other writer takes it for a leftover
            file.write(data)
            file.flush()
            _set_attributes(file.fileno(), attributes)
            if durable:
                os.fsync(file.fileno())
            if not temporary:  # `os.replace` needs a name
                temporary = _temporary_name(name)
                source = str(_OPEN_FILES / str(file.fileno()))
                os.link(source, temporary, dst_dir_fd=directory, follow_symlinks=True)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:  # also an interrupt must leave no file behind
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
    """Delete a temporary file; raises OSError if its writer is alive."""
    descriptor = os.open(name, _LEFTOVER, dir_fd=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(descriptor)


def _new_file(directory: int, name: str, mode: int) -> tuple[int, str]:
    """A new file, open for writing: its descriptor, and its name, "" if it has none yet."""
    # an unnamed file gets its name through /proc
    if hasattr(os, "O_TMPFILE") and _OPEN_FILES.is_dir():
        with contextlib.suppress(OSError):  # not every file system has unnamed files
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            return os.open(".", flags, mode, dir_fd=directory), ""
    temporary = _temporary_name(name)
    return os.open(temporary, _NEW_FILE, mode, dir_fd=directory), temporary


def _temporary_name(name: str) -> str:
    """`.NAME.` and a random token, which `remove_leftovers` recognises."""
    return f"{_stem(name)}.{secrets.token_hex(_TOKEN_BYTES)}"


def _stem(name: str) -> str:
    """`.NAME`, cut so that a token still fits into the length of a file's name."""
    return "." + os.fsencode(name)[:_MAX_STEM].decode("utf-8", "ignore")


def _set_attributes(descriptor: int, attributes: Attributes) -> None:
    """Give an open file its owner, then its mode, which a change of the owner may reduce."""
    if attributes.owner is not None:
        with contextlib.suppress(PermissionError):  # only root may give files away
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
            data = file.read(limit + 1)  # one byte more tells that it is too long
        if len(data) > limit:
            raise ConfigError(f"{path}: too large for settings: over {limit} bytes")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: can't be read: {reason}") from error


def read_settings(path: Path) -> str:
    """The text of a settings file, "" if there is none; raises ConfigError, as `read_text` does."""
    try:
        return read_text(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return ""


def parse_toml(place: str | Path, text: str) -> dict[str, Any]:
    """The data of a TOML file; raises ConfigError that names the `place`."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: not valid TOML: {error}") from error


def _check_kind(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError for a pipe, a device or a directory.

    The null device is an empty file: with it, users switch a file of settings off.
    """
    if stat.S_ISREG(status.st_mode) or os.path.samestat(status, Path(os.devnull).stat()):
        return
    raise ConfigError(f"{path}: is not a regular file; put one there, or remove it")


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock of the file at `path`; waits until other processes release it."""
    target = path.resolve()
    make_private_directory(target.parent)
    # a file of its own, because each write replaces the file at `path`
    lock = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def line_of(text: str, path: Sequence[Key]) -> int:
    """The line, from 1, on which the setting at `path` starts.

    If it is missing, its nearest existing parent counts, or line 1. `text` is valid TOML. For
    messages only, because it is slow (it parses beginnings of the file).
    """
    lines = text.splitlines()
    while path and not _contains(tomllib.loads(text), path):
        path = path[:-1]
    if not path:
        return 1
    return _first_statement(lines, _lines_before(lines, path)) + 1


def _lines_before(lines: Sequence[str], path: Sequence[Key]) -> int:
    """The largest number of lines that are valid TOML without `path`, by binary search."""
    lacking, having, parses = 0, len(lines), 0
    while having - lacking > 1 and parses < MAX_PARSES:
        middle = (lacking + having) // 2
        # a cut within a value of several lines is not TOML: then the nearest one that is
        for count in (*range(middle, lacking, -1), *range(middle + 1, having)):
            parsed = _parse("\n".join(lines[:count]))
            parses += 1
            if parsed is not None or parses >= MAX_PARSES:
                break
        else:  # no cut between the two is TOML: the statement is one value of all these lines
            break
        if parsed is not None and _contains(parsed, path):
            having = count
        elif parsed is not None:
            lacking = count
    return lacking


def _first_statement(lines: Sequence[str], start: int) -> int:
    """The index of the first line from `start` on that is no comment and not empty."""
    while start < len(lines) - 1 and lines[start].strip()[:1] in ("", "#"):
        start += 1
    return start


def _parse(text: str) -> dict[str, Any] | None:
    """The data of a text; None if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _contains(data: object, path: Sequence[Key]) -> bool:
    """Whether there is a value at `path`: keys of tables, and places in arrays."""
    for key in path:
        if isinstance(data, dict) and key in data:
            data = cast(dict[Key, object], data)[key]
        elif isinstance(data, list) and isinstance(key, int):
            items = cast(list[object], data)
            if not 0 <= key < len(items):
                return False
            data = items[key]
        else:
            return False
    return True
