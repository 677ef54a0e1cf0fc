"""Errors of the command line only."""

from shepherd.errors import ShepherdError


class UsageError(ShepherdError):
    """The command line does not make sense; exit code 2."""
