"""What goes into the wheel beside the modules."""

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STRANGER = re.compile(
    r"\b(?:pipx?3?|uv|tool) (?:install|add) [^\n`]*?(?<![/\w.-])shepherd(?![\w./-])"
)
"""An installation of the package `shepherd`, which is somebody else's on PyPI."""


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


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "shepherd-agent"
    assert STRANGER.search("run `pip install 'shepherd[postgres]'`.")
    assert STRANGER.search("uv tool install shepherd")
    assert not STRANGER.search("uv tool install shepherd-agent")
    assert not STRANGER.search("pip install /source/shepherd[ray]")
    names = subprocess.run(
        ("git", "ls-files"), cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [ROOT / name for name in names.stdout.splitlines()]
    texts = [f for f in files if f.suffix in {".md", ".py", ".toml", ".yaml", ".sh", ""}]
    told = [str(f) for f in texts if f.is_file() and STRANGER.search(f.read_text("utf-8"))]
    assert told == [str(Path(__file__))]
