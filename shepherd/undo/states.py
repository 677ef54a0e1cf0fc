"""The state of one path, as it is captured and compared."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from shepherd.tools.files.opening import open_parent, open_regular_at
from shepherd.tools.paths import reason
from shepherd.tools.permissions.content import is_key

SECRET = "it may hold a secret"


class Kind(StrEnum):
    """What is at a path; UNKEPT is something whose content is not stored."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    UNKEPT = "unkept"


@dataclass(frozen=True, slots=True)
class FileState:
    """A path at one moment; equal states have equal content and mode.

    `detail` is the digest of a file, the target of a link, or marks an unkept file by its size and
    times. `why` gives the reason for UNKEPT. `owner` is the user's and the group's number.
    """

    kind: Kind
    mode: int = 0
    detail: str = ""
    why: str = field(default="", compare=False)
    owner: tuple[int, int] | None = field(default=None, compare=False)

    def to_json(self) -> list[object]:
        """The state as a JSON array; `state_from_json` is the inverse."""
        return [self.kind.value, self.mode, self.detail, self.why, self.owner]


ABSENT = FileState(Kind.ABSENT)


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a change, before and after it."""

    path: str
    before: FileState
    after: FileState


def entries_to_json(entries: tuple[Entry, ...]) -> str:
    """The entries as ASCII text, which also holds names that are not Unicode."""
    return json.dumps([[e.path, e.before.to_json(), e.after.to_json()] for e in entries])


def entries_from_json(text: str) -> tuple[Entry, ...]:
    """The inverse of `entries_to_json`."""
    rows = json.loads(text)
    return tuple(Entry(str(path), _state(old), _state(new)) for path, old, new in rows)


def _state(data: list[Any]) -> FileState:
    kind, mode, detail, why, owner = data
    return FileState(Kind(kind), int(mode), str(detail), str(why), tuple(owner) if owner else None)


@dataclass(frozen=True, slots=True)
class Capture:
    """Captures states; `keep` stores a file's bytes under their digest.

    `protects` tells whether a path holds a secret. Files over `max_bytes` and secrets are UNKEPT.
    """

    keep: Callable[[str, bytes], None]
    protects: Callable[[Path], bool]
    max_bytes: int

    def state(self, path: Path) -> FileState:
        """The state of the resolved `path`, whose last part may be a link."""
        try:
            directory = open_parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return FileState(Kind.UNKEPT, detail="parent", why=reason(error))
        try:
            return self._in_directory(directory, path)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return FileState(Kind.UNKEPT, detail="unreadable", why=reason(error))
        finally:
            os.close(directory)

    def _in_directory(self, directory: int, path: Path) -> FileState:
        status = os.stat(path.name or ".", dir_fd=directory, follow_symlinks=False)
        owner = (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            return FileState(Kind.LINK, 0, os.readlink(path.name, dir_fd=directory), "", owner)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return FileState(Kind.DIRECTORY, mode, "", "", owner)
        if not stat.S_ISREG(status.st_mode):
            return FileState(Kind.UNKEPT, mode, "special", "it is not a regular file")
        if why := self._refusal(path, status):
            return unkept(status, why)
        descriptor = open_regular_at(directory, path.name)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(self.max_bytes + 1)
        if len(data) > self.max_bytes:
            return unkept(status, "it grows while it is read")
        if is_key(data):
            return unkept(status, SECRET)
        digest = sha256(data).hexdigest()
        self.keep(digest, data)
        return FileState(Kind.FILE, mode, digest, "", owner)

    def _refusal(self, path: Path, status: os.stat_result) -> str:
        """The reason not to keep the content; "" if there is none."""
        if status.st_size > self.max_bytes:
            return f"it is larger than {self.max_bytes:,} bytes"
        return SECRET if self.protects(path) else ""


def unkept(status: os.stat_result, why: str) -> FileState:
    """The state of a file whose content is not stored."""
    marks = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    mode = stat.S_IMODE(status.st_mode)
    return FileState(Kind.UNKEPT, mode, "-".join(map(str, marks)), why)
