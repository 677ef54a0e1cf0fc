"""Searches files for a regular expression, in a separate process that can be killed.

A regular expression may run for ever and holds the interpreter's lock meanwhile. Standard
input: the pattern, then paths, each ended by NUL. Standard output: `path NUL line:text` lines.
Exit code 3: the pattern is invalid; the reason is on standard error. Imports no other module
of Shepherd.
"""

import re
import stat
import sys
from pathlib import Path
from typing import BinaryIO

_HEAD = 8192
_MAX_LINE = 1 << 20


def main() -> int:
    """Search all files and print their matches."""
    pattern, *paths = sys.stdin.buffer.read().split(b"\0")
    try:
        regex = re.compile(pattern.decode("utf-8", "replace"))
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    for path in paths:
        if path:
            _search(regex, path)
    return 0


def _search(regex: re.Pattern[str], path: bytes) -> None:
    """Print the matches in the file at `path`."""
    name = Path(path.decode(sys.getfilesystemencoding(), "surrogateescape"))
    try:
        if not stat.S_ISREG(name.lstat().st_mode):
            return  # opening a FIFO would wait for ever
        with name.open("rb") as file:
            _search_open(regex, path, file)
    except OSError:
        # deleted or unreadable: treat it as without matches
        return


def _search_open(regex: re.Pattern[str], path: bytes, file: BinaryIO) -> None:
    """Print the matching lines of an open file, unless it is binary."""
    head = file.read(_HEAD)
    if b"\0" in head:
        return  # a binary file
    file.seek(0)
    out = sys.stdout.buffer
    number, at_line_start = 1, True
    while piece := file.readline(_MAX_LINE):
        ends_line = piece.endswith(b"\n")
        if at_line_start:  # of a line that is longer, only the first piece is searched
            text = piece.rstrip(b"\n").removesuffix(b"\r")
            if regex.search(text.decode("utf-8", "replace")):
                out.write(b"%b\0%d:%b\n" % (path, number, text))
        at_line_start = ends_line
        number += ends_line
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
