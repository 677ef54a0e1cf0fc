"""What holds for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings


def pytest_configure(config: pytest.Config) -> None:
    """Take SIGINT also as a background job, which ignores it, and let a slow machine be slow."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile(
        "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
    )
    settings.register_profile("search", settings.get_profile("same"), derandomize=False)
    settings.load_profile(os.environ.get("SHEPHERD_EXAMPLES", "same"))
