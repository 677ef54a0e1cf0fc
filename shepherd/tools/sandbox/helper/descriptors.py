"""Descriptors that a box passes to its helper."""

import contextlib
import json
import os
import select
import signal
import socket
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


def await_first_process(channel: socket.socket) -> None:
    """Wait until the process is dead of which a helper wrote `{"child-pid": N}`.

    It is the first of the box: with it dies all that was started inside.
    """
    channel.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        if text := channel.recv(_MAX_INFO):
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
