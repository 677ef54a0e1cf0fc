"""Errors of the command line alone."""

from shepherd.errors import ShepherdError


class UsageError(ShepherdError):
    """The command line asks for what makes no sense; exit code 2."""
