"""Two names that change places all the time, as an attacker beside a tool would have it."""

import mmap
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FLIP = """
import ctypes, mmap, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
first, second = map(os.fsencode, sys.argv[1:])
with mmap.mmap(0, 8) as counter:
    flips = 0
    parent = os.getppid()
    while os.getppid() == parent:
        if libc.renameat2(-100, first, -100, second, 2):  # RENAME_EXCHANGE
            sys.exit(os.strerror(ctypes.get_errno()))
        flips += 1
        struct.pack_into("Q", counter, 0, flips)
"""


@dataclass
class Flips:
    """How often the names have changed places."""

    _counter: mmap.mmap

    @property
    def count(self) -> int:
        """So far."""
        return int.from_bytes(self._counter[:8], "little")


@contextmanager
def flipping(first: Path, second: Path) -> Generator[Flips]:
    """Exchange two existing names, in a process of its own, until the block ends."""
    with tempfile.TemporaryFile() as file:
        file.truncate(8)
        with mmap.mmap(file.fileno(), 8) as counter:
            argv = [sys.executable, "-I", "-S", "-c", _FLIP, str(first), str(second)]
            process = subprocess.Popen(argv, stdin=file)
            try:
                yield Flips(counter)
                assert process.poll() is None, "nothing was exchanged any more"
            finally:
                process.kill()
                process.wait()
