from pathlib import Path

import pytest

from tests.tools.workshop import Workshop, open_workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """Everything that no rule denies is allowed."""
    return open_workshop(tmp_path)
