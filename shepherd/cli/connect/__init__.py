"""A terminal on a conversation of another process: `shepherd --connect URL`."""

from shepherd.cli.connect.start import run_connected

__all__ = ["run_connected"]
