"""Encloses a command by namespaces, Landlock and seccomp."""

import os

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.namespaces import (
    build_root,
    raise_loopback,
    separate,
)
from shepherd.tools.sandbox.inside.native import restrict
from shepherd.tools.sandbox.inside.orders import Orders, close_others, receive
from shepherd.tools.sandbox.inside.processes import (
    Reaper,
    exit_like,
    report_process,
    running_tasks,
    wait_for,
)
from shepherd.tools.sandbox.inside.start import (
    SETUP_FAILED,
    become,
    set_limits,
    signals,
    stop,
)


def main(channel: int) -> None:
    """Wait for orders, run the command as ordered, and end like it; does not return."""
    _run(receive(channel))


def _run(orders: Orders) -> None:
    try:
        if orders.bare:
            _run_bare(orders)
        else:
            _run_separate(orders)
    except OSError as error:
        what = error.filename or "a step"
        stop(f"the sandbox can't be set up: {what}: {error.strerror}", SETUP_FAILED)


def _run_separate(orders: Orders) -> None:
    separate(network=orders.network)
    child = os.fork()
    if child:
        native.control_process(native.PR_SET_DUMPABLE, 0)
        report_process(orders.info, child)
        close_others()
        exit_like(wait_for(child))
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    if not orders.network:
        raise_loopback()
    build_root(orders.mounts, orders.new_root, orders.shared_memory, orders.limits.get("NPROC"))
    child = os.fork()
    if child:
        native.control_process(native.PR_SET_DUMPABLE, 0)
        close_others()
        exit_like(wait_for(child))
    _confine(orders)


def _run_bare(orders: Orders) -> None:
    native.control_process(native.PR_SET_CHILD_SUBREAPER, 1)
    native.control_process(native.PR_SET_DUMPABLE, 0)
    if "NPROC" in orders.limits:
        orders.limits["NPROC"] += running_tasks()
    report_process(orders.info, os.getpid())
    child = os.fork()
    if child:
        close_others()
        exit_like(Reaper(child).finish())
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    _confine(orders)


def _confine(orders: Orders) -> None:
    os.chdir(orders.cwd)
    close_others(orders.pass_fds)
    native.control_process(native.PR_SET_NO_NEW_PRIVS, 1)
    native.drop_capabilities()
    restrict(orders.rights, tcp=orders.network or not orders.bare)
    native.set_filter(orders.filter)
    set_limits(orders.limits)
    become(orders.command, orders.environment)
