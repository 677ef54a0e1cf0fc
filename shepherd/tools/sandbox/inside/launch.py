"""Becomes another program, which encloses the command."""

import os

from shepherd.tools.sandbox.inside.orders import SETUP_FAILED, receive, stop


def main(channel: int) -> None:
    """Wait for orders, and become the program that they name; SIGTERM stays ignored."""
    orders = receive(channel)
    program = orders.command[0]
    try:
        os.execve(program, orders.command, orders.environment)
    except OSError as error:
        stop(f"the sandbox can't be set up: {program}: {error.strerror}", SETUP_FAILED)
