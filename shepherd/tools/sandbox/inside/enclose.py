"""The last steps of a command in a box, by which it is enclosed and then started."""

import os
import time
from _collections_abc import Callable  # `collections` itself would take longer to import

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.namespaces import Root, leave_owner, rights_beside, separate
from shepherd.tools.sandbox.inside.native import restrict
from shepherd.tools.sandbox.inside.orders import (
    SETUP_FAILED,
    Orders,
    become,
    close_others,
    set_limits,
    signals,
    stop,
)


def enclose(**values: object) -> None:
    """Become the command by namespaces, Landlock and seccomp; ends like it, and does not return."""
    _become_in(_run_separate, values)


def enclose_bare(**values: object) -> None:
    """The same without namespaces."""
    _become_in(_run_bare, values)


def finish_nested(**values: object) -> None:
    """Become the command; begins in bubblewrap, as the root of its user namespace.

    bubblewrap mounts by path, and follows links, which another boxed command can make at any time.
    So all that the command sees is mounted here.
    """
    _become_in(_run_nested, values)


def _become_in(run: Callable[[Orders], None], values: dict[str, object]) -> None:
    """Run the steps, or end this process: without each of them the command must not run."""
    try:
        run(Orders(**values))
    except OSError as error:
        step = error.filename or "a step"
        stop(f"the sandbox can't be set up: {step}: {error.strerror}", SETUP_FAILED)


def _run_nested(orders: Orders) -> None:
    # in bubblewrap's own namespace, because the command can look through its first process
    root = Root(orders.new_root)
    root.prepare(orders.shared_memory, orders.processes)
    root.enter(orders.mounts)
    leave_owner(orders.user, orders.group)
    native.limit_capabilities()
    orders.rights = None
    _confine(orders, tcp=True)


def _run_separate(orders: Orders) -> None:
    """Become the command in new namespaces, as the grandchild of this process.

    The child is the first process of the namespace: all others end with it. A process gets a new
    namespace of processes only by a fork, and the first one must stay to reap the others.
    """
    separate(network=orders.network)
    native.limit_capabilities()
    _go_on_in_child(report_to=orders.info)
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    native.unshare(native.CLONE_NEWNS)
    _go_on_in_child()
    root = Root(orders.new_root)
    root.prepare(orders.shared_memory, orders.processes)
    root.enter(orders.mounts)
    orders.rights = rights_beside(orders.mounts)
    _confine(orders, tcp=True)


def _go_on_in_child(report_to: int | None = None) -> None:
    """Return in a new child alone; this process waits for it, and then ends like it."""
    child = os.fork()
    if child:
        native.control_process(native.PR_SET_DUMPABLE, 0)  # the command can't trace this process
        if report_to is not None:
            report_process(report_to, child)
        close_others()
        exit_like(wait_for(child))


def _run_bare(orders: Orders) -> None:
    """Become the command as the child of this process, which ends all that it leaves behind."""
    native.limit_capabilities()
    native.control_process(native.PR_SET_CHILD_SUBREAPER, 1)
    native.control_process(native.PR_SET_DUMPABLE, 0)
    tasks = running_tasks()  # the limit of processes counts those outside of the box, too
    report_process(orders.info, os.getpid())
    reaper = os.getpid()
    child = os.fork()
    if child:
        close_others()
        exit_like(Reaper(child).finish())
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    if os.getppid() != reaper:  # it died before the signal was set, so that none will come
        os._exit(SETUP_FAILED)
    if "NPROC" in orders.limits:
        orders.limits["NPROC"] += tasks
    _confine(orders, tcp=orders.network)


def _confine(orders: Orders, *, tcp: bool) -> None:
    """Give up all rights that the command must not have, and become it.

    Without new privileges, Landlock and the filter need no capabilities, so these can go before.
    """
    os.chdir(orders.cwd)
    close_others(orders.pass_fds)
    native.control_process(native.PR_SET_NO_NEW_PRIVS, 1)
    native.drop_capabilities()
    if orders.rights is not None:
        restrict(orders.rights, tcp=tcp)
    native.set_filter(orders.filter)
    set_limits(orders.limits)
    become(orders.command, orders.environment)


_THREADS = 17  # the place of a process's number of threads among `_status`
_GRACE = 0.7  # less than the time after which the caller kills this process
_RETRY_DELAY = 0.01
_EVENTS = (signals.SIGCHLD, signals.SIGTERM)


def exit_like(status: int) -> None:
    """End this process with another's wait status."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)  # as a shell reports the end by a signal


def wait_for(child: int) -> int:
    """The wait status of a child; reaps all others that end before it."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return status


class Reaper:
    """Ends all processes of a command if there is no process namespace that would do it.

    This process must be a subreaper, so that without children it has no descendants.
    """

    def __init__(self, child: int) -> None:
        self._child = child
        self._status: int | None = None  # the child's wait status
        self._deadline: float | None = None  # the end of the grace period after SIGTERM
        signals.pthread_sigmask(signals.SIG_BLOCK, _EVENTS)  # they wait for `_await_event`

    def finish(self) -> int:
        """The command's wait status, once no process that it started is alive."""
        while self._bury() and self._status is None:  # until it ends, or its grace period
            remaining = None if self._deadline is None else self._deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                break
            self._await_event(remaining)
        while self._bury():  # killing takes several rounds, as processes may fork meanwhile
            signal_all(signals.SIGKILL)
            self._await_event(_RETRY_DELAY)
        # a wait status that is a signal's number stands for the end by this signal
        return int(signals.SIGKILL) if self._status is None else self._status

    def _bury(self) -> bool:
        """Reap all children that have ended; returns whether others are alive."""
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not ended:
                return True
            if ended == self._child:
                self._status = status

    def _await_event(self, seconds: float | None) -> None:
        """Wait for the end of a child; forward SIGTERM, which starts the grace period."""
        if seconds is None:
            event = signals.sigwaitinfo(_EVENTS)
        else:
            event = signals.sigtimedwait(_EVENTS, seconds)
        if event is not None and event.si_signo == signals.SIGTERM and self._deadline is None:
            self._deadline = time.monotonic() + _GRACE
            signal_all(signals.SIGTERM)


def signal_all(number: int) -> None:
    """Send a signal to all descendants of this process."""
    for process in descendants():
        try:
            os.kill(process, number)
        except ProcessLookupError:  # it has ended meanwhile
            continue


def descendants() -> list[int]:
    """The living processes below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _living_parent(name)
            if parent is not None:
                parents[int(name)] = parent
    below = {os.getpid()}
    generation = below
    while generation:
        children = {process for process, parent in parents.items() if parent in below}
        generation = children - below
        below = below | generation
    return sorted(below - {os.getpid()})


def _living_parent(name: str) -> int | None:
    """The parent of a process, None if it has ended; its fields are the state and the parent."""
    fields = _status(name)
    return int(fields[1]) if fields else None


def running_tasks() -> int:
    """The number of this user's threads, which RLIMIT_NPROC counts."""
    user, count = os.geteuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                is_of_user = os.stat(f"/proc/{name}").st_uid == user
            except OSError:
                continue  # it has ended
            fields = _status(name) if is_of_user else []
            count += int(fields[_THREADS]) if fields else 0
    return count


def _status(name: str) -> list[bytes]:
    """The fields in `/proc/N/stat` behind the name, `12 (sh) S 1 …`; none if it has ended."""
    try:
        descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        _, _, fields = os.read(descriptor, 4096).rpartition(b")")  # the name may hold brackets
        return fields.split()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def report_process(descriptor: int, process: int) -> None:
    """Report to the caller the process for which it must wait."""
    os.write(descriptor, f'{{"child-pid": {process}}}'.encode())
