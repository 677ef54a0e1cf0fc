"""Waiting for a command, and ending what it leaves behind."""

import os
import time

from shepherd.tools.sandbox.inside.start import signals

_GRACE = 0.7  # less than the time after which the caller kills this process
_MIN_DELAY, _MAX_DELAY = 0.001, 0.01


def exit_like(status: int) -> None:
    """End this process with another's wait status."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def wait_for(child: int) -> int:
    """The wait status of a child, burying all others that end before."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        if ended == child:
            return status


class Reaper:
    """Watches over a command where there is no namespace of processes that would end it all."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._terminated = False
        self._delay = _MIN_DELAY
        signals.signal(signals.SIGTERM, self._terminate)

    def _terminate(self, _number: int, _frame: object) -> None:
        self._terminated = True

    def finish(self) -> int:
        """The command's wait status, when nothing that it started is alive."""
        status, deadline = None, None
        while status is None and (deadline is None or time.monotonic() < deadline):
            status = self._look()
            if self._terminated and deadline is None:
                deadline = time.monotonic() + _GRACE
                signal_all(signals.SIGTERM)
        while signal_all(signals.SIGKILL):
            status = self._look() if status is None else (self._look(), status)[1]
        return int(signals.SIGKILL) if status is None else status

    def _look(self) -> int | None:
        """Bury the dead; the command's status if it was among them. Naps if nobody was."""
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == 0:
            time.sleep(self._delay)
            self._delay = min(self._delay * 1.3, _MAX_DELAY)
        return status if ended == self._child else None


def signal_all(number: int) -> int:
    """Send a signal to all descendants of this process; how many there are."""
    targets = descendants()
    for process in targets:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
    return len(targets)


def descendants() -> list[int]:
    """The living processes below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _living_parent(name)
            if parent is not None:
                parents[int(name)] = parent
    below = {os.getpid()}
    grown = True
    while grown:
        more = {process for process, parent in parents.items() if parent in below} - below
        grown = bool(more)
        below |= more
    return sorted(below - {os.getpid()})


def _living_parent(name: str) -> int | None:
    fields = _status(name)
    return int(fields[1]) if fields else None


def running_tasks() -> int:
    """How many threads this user has, which is what RLIMIT_NPROC counts."""
    user, count = os.geteuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                mine = os.stat(f"/proc/{name}").st_uid == user
            except OSError:
                continue
            fields = _status(name) if mine else []
            count += int(fields[17]) if fields else 0
    return count


def _status(name: str) -> list[bytes]:
    """The fields of a process from its state on; none if it has gone."""
    try:
        descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(descriptor, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def report_process(descriptor: int, process: int) -> None:
    """Tell the caller which process to wait for."""
    os.write(descriptor, f'{{"child-pid": {process}}}'.encode())
    os.close(descriptor)
