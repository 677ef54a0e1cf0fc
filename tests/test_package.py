"""What goes into the wheel beside the modules."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["py.typed", "config/models.toml", "models/pup.gguf"])
def test_what_the_package_needs_is_in_the_wheel(name: str) -> None:
    """Hatchling takes everything of the package that git does not ignore."""
    target = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = target["targets"]["wheel"]
    assert wheel == {"packages": ["shepherd"]}
    assert set(target) == {"targets"}
    path = Path("shepherd") / name
    assert (ROOT / path).is_file()
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [line.strip("/") for line in lines if line and not line.startswith("#")]
    for part in (path, *path.parents):
        assert not any(fnmatch(part.name, p) or fnmatch(str(part), p) for p in ignored if part.name)
