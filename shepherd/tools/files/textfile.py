"""A whole text file in memory, ready to be changed and written back as it was."""

import os
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import AccessKind
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.encoding import UTF8, Encoding, detect
from shepherd.tools.files.opening import file_errors
from shepherd.tools.text import counted

MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file with its line ends as they are, and its encoding."""

    text: str
    encoding: Encoding = UTF8

    @property
    def newline(self) -> str:
        """The line end that most lines have."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows * 2 > self.text.count("\n") else "\n"


def load_text(
    files: FileAccess, path: Path, shown: str, kind: AccessKind = AccessKind.READ
) -> TextFile:
    """The file at the resolved `path`; raises ToolError naming it as `shown`."""
    with file_errors(shown), files.open(path, kind) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise ToolError(f"too large to edit: {shown} ({size} bytes)")
        data = file.read(MAX_BYTES + 1)
    encoding = detect(data)
    if encoding is None:
        raise ToolError(f"binary file: {shown} ({counted(size, 'byte')})")
    try:
        return TextFile(encoding.decode(data), encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"not valid {encoding.codec}: {shown}") from error


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a write would replace: `text`, or a `note` on a file whose text can't be shown."""

    text: str = ""
    note: str = ""


def replaced_file(files: FileAccess, path: Path) -> Replaced:
    """What stands at the path that a write would replace; empty if there is nothing.

    Raises ToolError if a rule denies the file.
    """
    try:
        with files.open(path, AccessKind.WRITE) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(MAX_BYTES + 1) if size <= MAX_BYTES else b""
    except FileNotFoundError:
        return Replaced()
    except OSError:
        return Replaced(note="replaces a file that can't be read")
    if size > MAX_BYTES:
        return Replaced(note=f"replaces a file of {counted(size, 'byte')}, too large to compare")
    encoding = detect(data)
    try:
        if encoding is not None:
            return Replaced(encoding.decode(data))
    except UnicodeDecodeError:
        pass
    return Replaced(note=f"replaces a binary file of {counted(size, 'byte')}")
