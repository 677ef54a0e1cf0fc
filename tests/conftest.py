"""What holds for all tests."""

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Take SIGINT also as a background job, which ignores it: programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
