"""The program's entry point; loads as little as the command line allows."""

import os
import sys

from shepherd.cli.terminal.errors import UsageError
from shepherd.errors import ShepherdError
from shepherd.version import __version__

TYPE_CHECKING = False  # as in typing, which takes longer to load than `shepherd --version` does
if TYPE_CHECKING:
    from collections.abc import Callable

_COLLECTED_OBJECTS = 20_000
"""New objects between two garbage collections: with Python's 700, a start makes 150 of them."""

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main() -> int:
    """Run `shepherd` with the process's arguments and return its exit code.

    0 done, 1 error, 2 usage, 130 interrupted, 128 + N ended by signal N.
    """
    _open_closed_streams()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"shepherd {__version__}\n")
        return 0
    return guarded(lambda: _run(arguments), debug="--debug" in arguments)


def _open_closed_streams() -> None:
    """Put the null device where a standard stream is closed (`>&-`).

    The next file that is opened would get its number, and be written to by whatever prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def guarded(work: "Callable[[], int]", *, debug: bool = False) -> int:
    """The exit code of `work`; an error becomes one line on stderr, or raised with `debug`."""
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
    except OSError as error:  # a full disk, a home that can't be written
        if debug:
            raise
        _report(_reason(error))
        return _end_output()


def _report(problem: object) -> None:
    """The message on stderr; names in it may come from files that others wrote."""
    from shepherd.cli.terminal.sanitize import sanitize

    sys.stderr.write(f"shepherd: {sanitize(str(problem))}\n")


def _reason(error: OSError) -> str:
    """What the system refused, without its number: `PATH: No space left on device`."""
    reason = error.strerror or str(error) or type(error).__name__
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return f"{place}{reason}"


def _end_output() -> int:
    try:
        sys.stdout.flush()
    except OSError:
        return _drop_output()
    return FAILED


def _run(arguments: list[str]) -> int:
    """Do what is asked for; a bare `shepherd` does without the parser of options."""
    import gc

    gc.set_threshold(_COLLECTED_OBJECTS)
    if not arguments:
        from shepherd.cli.launch import launch
        from shepherd.cli.request import Launch

        return launch(Launch())
    from shepherd.cli.options import run_command_line

    return run_command_line(arguments)


def _drop_output() -> int:
    """Keep the interpreter from complaining about a closed stdout when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return FAILED
