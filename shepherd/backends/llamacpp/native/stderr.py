"""What native code prints to the process's standard error."""

import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager

_STDERR = 2


@contextmanager
def captured_stderr() -> Generator[Callable[[], str]]:
    """Keep back what the process prints to its standard error; the function reads it.

    It holds for all threads, so only for moments. Without a standard error nothing is read.
    """
    try:
        saved = os.dup(_STDERR)
    except OSError:
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), _STDERR)

        def read() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield read
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
