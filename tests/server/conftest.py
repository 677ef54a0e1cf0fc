"""What holds for all tests of the server."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _frequent_checks() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Look often whether the key of a running request was removed: tests wait for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shepherd.server.guard.CHECK_SECONDS", 0.05)
        yield
