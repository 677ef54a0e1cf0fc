from pathlib import Path
from zlib import crc32

import pytest

from shepherd.config.section import SandboxMode
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.examples import PROFILE
from tests.tools.sandbox.boxes import LAYERED, need
from tests.tools.workshop import Workshop, open_workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """Everything that no rule denies is allowed."""
    return open_workshop(tmp_path)


@pytest.fixture(
    params=LAYERED if PROFILE == "long" else [None], ids=lambda box: box.name if box else "a box"
)
def layered_box(request: pytest.FixtureRequest) -> Box:
    """Each box that takes layers in a long run; in others the test's name decides on one."""
    box: Box | None = request.param
    if box is None:
        box = LAYERED[crc32(request.node.name.encode()) % len(LAYERED)]
    need(box)
    return box


@pytest.fixture
def layered_sandbox(layered_box: Box, tmp_path: Path) -> Sandbox:
    """A sandbox in which commands change layers."""
    layers = (tmp_path / "layers",)
    return Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(layered_box, ()))
