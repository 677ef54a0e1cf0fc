"""Becomes another program, which encloses the command."""

import os

from shepherd.tools.sandbox.inside.orders import receive
from shepherd.tools.sandbox.inside.start import SETUP_FAILED, stop


def main(channel: int) -> None:
    """Wait for orders, and become the program that they name; SIGTERM stays ignored."""
    _become(**receive(channel))


def _become(command: list[str], environment: dict[str, str]) -> None:
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        stop(f"the sandbox can't be set up: {command[0]}: {error.strerror}", SETUP_FAILED)
