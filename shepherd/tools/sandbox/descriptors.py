"""Descriptors that a box passes to its helper."""

import contextlib
import json
import os
import select
import signal
from collections.abc import Generator
from contextlib import contextmanager

_PATIENCE = 5.0
_MAX_INFO = 65_536


@contextmanager
def memory_file(content: bytes) -> Generator[int]:
    """A descriptor to read `content` from."""
    descriptor = os.memfd_create("shepherd")
    with contextlib.closing(os.fdopen(descriptor, "w+b", buffering=0)) as file:
        file.write(content)
        file.seek(0)
        yield descriptor


@contextmanager
def awaited_process() -> Generator[int]:
    """A descriptor to which the helper writes `{"child-pid": N}`.

    Leaving the context waits until that process, the first of the box, is dead: with it dies all
    that was started inside.
    """
    read, write = os.pipe()
    try:
        yield write
    finally:
        os.close(write)
        with contextlib.closing(os.fdopen(read, "rb", buffering=0)) as info:
            os.set_blocking(info.fileno(), False)
            text = info.read(_MAX_INFO) or b""
        if text:
            _end(int(json.loads(text)["child-pid"]))


def _end(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return  # it has ended
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(_PATIENCE * 1000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            poll.poll(_PATIENCE * 1000)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
