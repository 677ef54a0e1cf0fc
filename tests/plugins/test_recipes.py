"""The files that each recipe of docs/extending.md names are those that are needed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.plugins.wheel import install, package_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
RECIPE = re.compile(r"^## Add an? (.+?)\n.*?^Files: (.+?)$", re.DOTALL | re.MULTILINE)
RECIPES = {title: re.findall(r"`([^`]+)`", files) for title, files in RECIPE.findall(PAGE)}
PLUGINS = {
    "tool": "weather",
    "backend": "echo",
    "adapter": "parrot",
    "slash command": "shout",
    "endpoint": "version",
    "format": "angles",
    "prompt or a resource": "notes",
}
LOAD = """
from shepherd.plugins import PluginError, installed_plugins
for plugin in installed_plugins():
    try:
        plugin.load()
    except PluginError:
        continue
    print(plugin.name)
"""
READ = """
import asyncio
from pathlib import Path
from shepherd.backends.opening import open_backend
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC
from shepherd.config.settings import Config
from shepherd.messages import ToolSpec

Path("s.txt").write_text("text: hi")
asyncio.run(open_backend(Config.model_validate({"model": {"name": "script:s.txt"}})))
output = OutputFilter(GENERIC, [ToolSpec("read", "")])
output.feed("<<call>>read<<arg>>path<<is>>a<</arg>><</call>>")
output.finish()
print([(call.name, call.arguments) for call in output.result.tool_calls])
"""
FIELD = """
    new_setting: Annotated[int, Field(ge=0, le=9, description="Something new.")] = 0

"""


def python(*arguments: str, cwd: Path, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_there_is_a_recipe_for_each_kind() -> None:
    assert set(RECIPES) == {*PLUGINS, "setting"}
    used = {file for title in PLUGINS for file in RECIPES[title]}
    assert used == {*package_files()} - {"shepherd_sample/__init__.py"}


@pytest.mark.parametrize("title", PLUGINS)
def test_the_files_of_a_plugin_are_all_that_it_needs(title: str, tmp_path: Path) -> None:
    site = install(tmp_path, RECIPES[title])
    assert python("-c", LOAD, cwd=tmp_path, path=site).split() == [PLUGINS[title]]


def test_calls_are_read_by_the_format_of_a_plugin(tmp_path: Path) -> None:
    site = install(tmp_path, RECIPES["format"])
    assert python("-c", READ, cwd=tmp_path, path=site) == "[('read', {'path': 'a'})]\n"


def test_the_files_of_a_setting_are_those_that_change(tmp_path: Path) -> None:
    """A setting is added to a copy; the generator then names what is outdated."""
    for name in ("shepherd", "scripts", "docs", "config"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what is compiled already
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changed, *generated = RECIPES["setting"]
    source = tmp_path / changed
    text, mark = source.read_text("utf-8"), '    """The plugins of installed packages."""\n'
    assert mark in text
    source.write_text(text.replace(mark, mark + FIELD))
    output = python("-m", "scripts.generate_reference", "--check", cwd=tmp_path, path=tmp_path)
    assert sorted(line.split()[0] for line in output.splitlines()) == sorted(generated)
