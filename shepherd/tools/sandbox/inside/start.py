"""The last step before the command: limits and signals."""

import os
import resource
import sys

SETUP_FAILED = 125

signals = __import__("_signal")
"""The core of `signal`, which would import enum and take longer than everything else here."""


def set_limits(limits: dict[str, int]) -> None:
    """Lower the limits, never raise them; the kernel ends this process first if memory runs out."""
    for name, number in limits.items():
        kind: int = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(kind)
        bound = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(kind, (bound, bound))
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"500")
    except OSError:
        return  # not every system offers this


def become(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run the command in this process, with the default handlers of signals.

    `environment` defaults to that of this process.
    """
    for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGPIPE):
        signals.signal(number, signals.SIG_DFL)
    signals.signal(signals.SIGXFSZ, signals.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ if environment is None else environment)
    except FileNotFoundError:
        stop(f"{command[0]}: command not found", 127)
    except OSError as error:
        stop(f"{command[0]}: {error.strerror}", 126)


def stop(text: str, code: int) -> None:
    """End this process with a message."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    os._exit(code)
