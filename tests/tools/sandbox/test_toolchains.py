"""Which directories of toolchains a command in a box gets to see."""

from pathlib import Path

import pytest

from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.view.toolchains import tool_paths
from tests.tools.sandbox.boxes import BOXES, make_profile, run_in


@pytest.mark.parametrize(
    "name",
    [
        "PYENV_ROOT",
        "NVM_DIR",
        "VOLTA_HOME",
        "ASDF_DIR",
        "SDKMAN_DIR",
        "CONDA_PREFIX",
        "MISE_DATA_DIR",
    ],
)
def test_a_toolchain_outside_of_the_home_is_shown(name: str, tmp_path: Path) -> None:
    place = tmp_path / "tools"
    place.mkdir()
    profile = make_profile(tmp_path)
    assert place in tool_paths(profile, {name: str(place)})
    for broad in (tmp_path, profile.home, profile.root, Path("/")):
        assert broad not in tool_paths(profile, {name: str(broad)})


@pytest.mark.parametrize(
    ("name", "parts"),
    [("CARGO_HOME", ["bin", "registry"]), ("GOPATH", ["bin", "pkg/mod"])],
)
def test_of_a_directory_that_may_hold_secrets_only_the_tools_are_shown(
    name: str, parts: list[str], tmp_path: Path
) -> None:
    place = tmp_path / "tools"
    for part in parts:
        (place / part).mkdir(parents=True)
    (place / "credentials.toml").write_text("token")
    paths = tool_paths(make_profile(tmp_path), {name: str(place)})
    assert {place / part for part in parts} <= set(paths)
    assert place not in paths


@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
def test_a_shim_finds_what_it_starts(box: Box, tmp_path: Path) -> None:
    place = tmp_path / "pyenv"
    for folder in ("bin", "shims", "versions/3/bin"):
        (place / folder).mkdir(parents=True)
    tool = place / "versions/3/bin/hello"
    tool.write_text("#!/bin/sh\necho hello from $0\n")
    shim = place / "shims/hello"
    shim.write_text(f"#!/bin/sh\nexec {tool}\n")
    for program in (tool, shim):
        program.chmod(0o755)
    profile = make_profile(tmp_path)
    environment = {"PATH": f"{place}/shims:/usr/bin:/bin", "HOME": str(profile.home)}
    ended = run_in(box, profile, "hello", environment)
    assert ended.out == f"hello from {tool}\n", ended
