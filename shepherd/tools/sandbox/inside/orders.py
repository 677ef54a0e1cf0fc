"""Orders for a program that was started ahead of time, and how it becomes the command in them."""

import marshal
import os
import resource
import sys

SETUP_FAILED = 125

signals = __import__("_signal")
"""The core of `signal`, which would import enum and take longer than everything else here."""

sockets = __import__("_socket")
"""The core of `socket`, which would import enum and selectors and take longer."""

_MAX_DESCRIPTORS = 253  # the kernel's maximum number of descriptors in one message
_STANDARD = 3


class Values:
    """Named values; a plain class, because importing dataclasses is slow."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


class Orders(Values):
    """The command to run, and its settings.

    Bubblewrap itself has only a command. `rights` are for Landlock, None without it; `mounts` are
    for the namespaces. The command inherits the descriptors `pass_fds`. In bubblewrap, it has this
    `user` and `group`, and the surroundings come with the orders.
    """

    command: list[str]
    environment: dict[str, str]
    cwd: str
    mounts: list[tuple[int, str, str]]
    rights: list[tuple[str, int]] | None
    filter: bytes
    limits: dict[str, int]
    pass_fds: tuple[int, ...]
    user: int
    group: int
    new_root: str
    shared_memory: int
    processes: int | None


class Surroundings(Values):
    """The directory in which the root of a command is built, and its limits."""

    new_root: str
    shared_memory: int
    processes: int | None


def receive(channel: int) -> Orders:
    """Receive the orders from a socket; end this process if the caller closes the socket.

    The received descriptors, and the channel as the last, get the numbers that the caller chose.
    All other descriptors are closed, except the standard ones.
    """
    values, targets, descriptors = _message(channel)
    _place([*descriptors, channel], targets)
    return Orders(**values)


def receive_surroundings(channel: int) -> Surroundings:
    """Receive the values of a command that are known before its orders; the channel stays open."""
    values, _targets, _descriptors = _message(channel)
    return Surroundings(**values)


def launch(channel: int) -> None:
    """Wait for orders, and become bubblewrap, which they name; SIGTERM stays ignored."""
    orders = receive(channel)
    program = orders.command[0]
    try:
        os.execve(program, orders.command, os.environ)
    except OSError as error:
        stop(f"the sandbox can't be set up: {program}: {error.strerror}", SETUP_FAILED)


def _message(channel: int) -> tuple[dict[str, object], list[int], list[int]]:
    """Values, the numbers that the caller chose, and the descriptors that get them."""
    for number in (signals.SIGINT, signals.SIGTERM):  # Shepherd ends a helper by its channel
        signals.signal(number, signals.SIG_IGN)
    plug = sockets.socket(fileno=channel)
    space = sockets.CMSG_SPACE(4 * _MAX_DESCRIPTORS)
    data, ancillary, _flags, _address = plug.recvmsg(1, space)
    plug.detach()
    if not data:  # the caller has closed it
        os._exit(0)
    _level, _kind, packed = ancillary[0]
    memory_file, *descriptors = _numbers(packed)
    with open(memory_file, "rb", buffering=0) as content:
        values, targets = marshal.loads(content.read())
    return values, targets, descriptors


def _numbers(packed: bytes) -> list[int]:
    """The descriptors of a message, each an integer of four bytes."""
    starts = range(0, len(packed), 4)
    return [int.from_bytes(packed[start : start + 4], sys.byteorder) for start in starts]


def _place(descriptors: list[int], targets: list[int]) -> None:
    """Give each descriptor its target as its number, and close all others."""
    # in two steps, as a target may be the number that another descriptor has now
    border = max(_STANDARD, *descriptors, *targets) + 1
    for offset, descriptor in enumerate(descriptors):
        os.dup2(descriptor, border + offset)
    for offset, target in enumerate(targets):
        os.dup2(border + offset, target)
    close_others(tuple(targets))


def close_others(keep: tuple[int, ...] = ()) -> None:
    """Close every descriptor except the standard ones and `keep`."""
    border = _STANDARD
    for descriptor in sorted(d for d in keep if d >= _STANDARD):
        os.closerange(border, descriptor)
        border = descriptor + 1
    os.closerange(border, max(border, 1 << 20))  # no process has more descriptors


def set_limits(limits: dict[str, int]) -> None:
    """Lower the limits, never raise them."""
    for name, number in limits.items():
        kind: int = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(kind)
        # RLIM_INFINITY is -1, which `min` would take for the lowest limit
        bound = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(kind, (bound, bound))
    # if memory runs out, the kernel ends the command rather than another program
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"500")
    except OSError:
        return  # not every system offers this


def become(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run the command in this process, with the default handlers of signals.

    `environment` defaults to that of this process.
    """
    ignored_by_python = (signals.SIGPIPE, signals.SIGXFSZ)  # `exec` would keep them ignored
    for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, *ignored_by_python):
        signals.signal(number, signals.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ if environment is None else environment)
    except FileNotFoundError:
        stop(f"{command[0]}: command not found", 127)  # the codes of shells
    except OSError as error:
        stop(f"{command[0]}: {error.strerror}", 126)


def stop(text: str, code: int) -> None:
    """End this process with a message."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    os._exit(code)
