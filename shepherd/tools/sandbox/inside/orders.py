"""Orders for a helper, and how it becomes the command in them."""

import os
import resource
import sys

SETUP_FAILED = 125

signals = __import__("_signal")
"""The core of `signal`, which would import enum and take longer than everything else here."""

sockets = __import__("_socket")
"""The core of `socket`, which would import enum and selectors and take longer."""

_STANDARD = 3


class Orders:
    """The command to run, and its settings; a plain class, as importing dataclasses is slow.

    `rights` are for Landlock, None without it. `mounts` and the directory `new_root` are for
    namespaces, in which there is `shared_memory` and a number of `processes`. The command inherits
    the descriptors `pass_fds`. In bubblewrap, it has this `user` and `group`. The process for which
    the caller waits is reported to the descriptor `info`.
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
    network: bool
    info: int

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


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
