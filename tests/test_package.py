"""What goes into the wheel and the sdist, and what the package asks for."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from shepherd.version import __version__

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


def test_what_the_tests_need_is_in_the_sdist() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    patterns = include["targets"]["sdist"]["include"]
    elsewhere = {".gitignore", ".pre-commit-config.yaml", "pyproject.toml", "training"}
    for name in {file.parts[0] for file in _tracked()} - elsewhere:
        assert any(fnmatch(name, pattern) for pattern in patterns), name


def test_what_is_imported_is_declared() -> None:
    """A package that only others bring may be gone with their next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared: set[str] = set()
    for line in (line for lines in lists for line in lines):
        name, *extras = re.split(r"[\[\],]+", re.split(r"[<>=;! ]", line)[0])
        declared |= {_key(name), *(f"{_key(name)}-{extra}" for extra in extras)}
    found = packages_distributions()
    for path in (ROOT / "shepherd").rglob("*.py"):
        for name in _imported(ast.parse(path.read_text("utf-8"))):
            if name not in sys.stdlib_module_names | {"shepherd", "ray", "tensorrt_llm"}:
                sources = {_key(source) for source in found.get(name, [name])}
                assert sources & declared, f"{path}: {name}"


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _key(name: str) -> str:
    return name.lower().replace("_", "-")


def _tracked() -> list[Path]:
    command = ("git", "ls-files")
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(name) for name in done.stdout.splitlines()]


def test_the_version_is_the_same_wherever_it_is_asked_for() -> None:
    """`1.0.0rc1` is a candidate; an odd spelling would be another tag than the wheel's name."""
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc[1-9]\d*)?", __version__)
    target = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert target["project"]["dynamic"] == ["version"]
    assert target["tool"]["hatch"]["version"] == {"path": "shepherd/version.py"}


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
