"""Running a program to its end, with all that it prints."""

from dataclasses import dataclass

from shepherd.tools.program import Startable


@dataclass(frozen=True, slots=True)
class Captured:
    """How a program ended; `code` is negative if a signal killed it."""

    code: int
    out: str
    err: str


def capture(program: Startable, timeout: float) -> Captured:
    """Run it for `timeout` seconds at most; raises subprocess.TimeoutExpired."""
    with program.start() as process:
        try:
            texts = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    out, err = (text.decode("utf-8", "replace") for text in texts)
    return Captured(process.returncode, out, err)
