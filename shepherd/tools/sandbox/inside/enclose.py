"""Encloses a command by namespaces, Landlock and seccomp."""

import os

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.namespaces import Root, separate
from shepherd.tools.sandbox.inside.native import restrict
from shepherd.tools.sandbox.inside.orders import (
    SETUP_FAILED,
    Orders,
    become,
    close_others,
    receive,
    receive_surroundings,
    set_limits,
    signals,
    stop,
)
from shepherd.tools.sandbox.inside.processes import (
    Reaper,
    exit_like,
    report_process,
    running_tasks,
    wait_for,
)


def main(channel: int, *, bare: bool, network: bool) -> None:
    """Become a command in three steps: at the start, before a command, and with its orders.

    `bare` means without namespaces. Ends like the command; does not return.
    """
    try:
        if bare:
            _run_bare(channel, network=network)
        else:
            _run_separate(channel, network=network)
    except OSError as error:
        step = error.filename or "a step"
        stop(f"the sandbox can't be set up: {step}: {error.strerror}", SETUP_FAILED)


def _run_separate(channel: int, *, network: bool) -> None:
    separate(network=network)
    native.limit_capabilities()
    surroundings = receive_surroundings(channel)
    child = os.fork()
    if child:
        native.control_process(native.PR_SET_DUMPABLE, 0)
        report_process(channel, child)
        close_others()
        exit_like(wait_for(child))
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    native.unshare(native.CLONE_NEWNS)
    child = os.fork()
    if child:
        native.control_process(native.PR_SET_DUMPABLE, 0)
        close_others()
        exit_like(wait_for(child))
    root = Root(surroundings.new_root)
    root.prepare(surroundings.shared_memory, surroundings.processes)
    orders = receive(channel)
    root.enter(orders.mounts)
    _confine(orders, tcp=True)


def _run_bare(channel: int, *, network: bool) -> None:
    native.limit_capabilities()
    native.control_process(native.PR_SET_CHILD_SUBREAPER, 1)
    receive_surroundings(channel)
    native.control_process(native.PR_SET_DUMPABLE, 0)
    tasks = running_tasks()
    report_process(channel, os.getpid())
    child = os.fork()
    if child:
        close_others()
        exit_like(Reaper(child).finish())
    native.control_process(native.PR_SET_PDEATHSIG, signals.SIGKILL)
    orders = receive(channel)
    if "NPROC" in orders.limits:
        orders.limits["NPROC"] += tasks
    _confine(orders, tcp=network)


def _confine(orders: Orders, *, tcp: bool) -> None:
    os.chdir(orders.cwd)
    close_others(orders.pass_fds)
    native.control_process(native.PR_SET_NO_NEW_PRIVS, 1)
    native.drop_capabilities()
    restrict(orders.rights, tcp=tcp)
    native.set_filter(orders.filter)
    set_limits(orders.limits)
    become(orders.command, orders.environment)
