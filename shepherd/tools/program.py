"""A program to run, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Program:
    """What to run and where; without `stdin` it reads from /dev/null.

    `pass_fds` are the descriptors that it inherits besides the standard ones.
    """

    argv: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] | None = None
    stdin: BinaryIO | None = None
    pass_fds: tuple[int, ...] = ()
