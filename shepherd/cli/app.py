"""The program's entry point."""

import os
import sys
from collections.abc import Callable

from shepherd.cli.terminal.sanitize import sanitize
from shepherd.errors import ShepherdError, UsageError
from shepherd.version import __version__

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main() -> int:
    """Run `shepherd` with the process's arguments and return its exit code.

    0 success, 1 error, 2 usage, 3 a denied call, 130 interrupted, 128 + N ended by signal N.
    """
    _open_closed_streams()
    try:
        _forget_working_directory()
    except FileNotFoundError:
        sys.stderr.write("shepherd: the working directory was deleted; go to another one.\n")
        return FAILED
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):  # the parser of options takes longer to import
        sys.stdout.write(f"shepherd {__version__}\n")
        return 0
    return guarded(lambda: _run(arguments), debug="--debug" in arguments)


def _run(arguments: list[str]) -> int:
    from shepherd.cli.options import run_command_line

    return run_command_line(arguments)


def _forget_working_directory() -> None:
    """Import nothing more from the working directory, in which a model may write modules.

    It is among the paths of `python -m`, and of a PYTHONPATH with an empty entry.
    """
    here = os.path.realpath(".")
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != here]


def _open_closed_streams() -> None:
    """Replace each closed standard stream (`>&-`) by the null device.

    Otherwise the next opened file would get its number, and printed output would go into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8")
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def guarded(work: Callable[[], int], *, debug: bool = False) -> int:
    """The exit code of `work`; an error becomes one line on stderr, or is raised with `debug`."""
    try:
        return work()
    except ShepherdError as error:
        if debug:
            raise
        _report(error)
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _drop_output()
    except OSError as error:  # a full disk, a home directory that is not writable
        if debug:
            raise
        _report(_reason(error))
        return _end_output()


def _report(problem: object) -> None:
    """Print the message on stderr; names in it may come from files that others wrote."""
    sys.stderr.write(f"shepherd: {sanitize(str(problem))}\n")


def _reason(error: OSError) -> str:
    """The system's reason for an error, without its number: `PATH: No space left on device`."""
    reason = error.strerror or str(error) or type(error).__name__
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return f"{place}{reason}"


def _end_output() -> int:
    """The exit code after an error of the system; what was printed before it is written."""
    try:
        sys.stdout.flush()
    except OSError:
        return _drop_output()
    return FAILED


def _drop_output() -> int:
    """Prevent the interpreter's complaint about a closed stdout at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return FAILED
