"""A terminal on a conversation that is held elsewhere: `shepherd --connect URL`."""

from shepherd.cli.connect.start import run_connected

__all__ = ["run_connected"]
