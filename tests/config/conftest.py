from pathlib import Path

import pytest

from tests.config.places import Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places.in_directory(tmp_path)
