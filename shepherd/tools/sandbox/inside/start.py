"""The last step before the command: limits and signals. Runs alone: `python -I -S start.py`.

Its arguments are the limits, as `name=number` with the names of RLIMIT_, a `--`, and the command.
"""

import _signal
import os
import resource
import sys


def main() -> None:
    """Set the limits, and become the command."""
    border = sys.argv.index("--")
    for argument in sys.argv[1:border]:
        name, _, number = argument.partition("=")
        lower(getattr(resource, f"RLIMIT_{name}"), int(number))
    become(sys.argv[border + 1 :])


def lower(kind: int, number: int) -> None:
    """Set a limit, never above the one that holds already."""
    _soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        number = min(number, hard)
    resource.setrlimit(kind, (number, number))


def become(command: list[str]) -> None:
    """Run the command in this process, with the signals' default meanings."""
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: command not found\n")
        os._exit(127)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(126)


if __name__ == "__main__":
    main()
