"""A whole text file in memory, ready to be changed and written back as it was."""

import os
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.files.encoding import UTF8, Encoding, detect
from shepherd.tools.files.opening import file_errors, open_regular
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


def load_text(path: Path, shown: str) -> TextFile:
    """The file at the resolved `path`; raises ToolError naming it as `shown`."""
    with file_errors(shown), os.fdopen(open_regular(path), "rb") as file:
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


def text_or_none(path: Path) -> str | None:
    """The text for a preview; None if there is no such text file."""
    try:
        return load_text(path, "").text
    except ToolError:
        return None
