"""Writes docs/reference/packages.md from pyproject.toml and the packages' docstrings."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

PAGE = "packages.md"

_ROOT = Path(__file__).parents[1]
_PACKAGE = _ROOT / "shepherd"
_HEAD = """# Packages

Generated from `pyproject.toml` and the docstrings of the packages; do not edit. How a message
travels through them: [message.md](../message.md).

The first column follows the layers. A package imports only packages that stand below it;
`make imports` checks that.

| package | what it holds |
|---|---|
"""


def render() -> str:
    """The page as Markdown."""
    return _HEAD + "\n".join(_rows())


def _rows() -> Iterator[str]:
    for name in _layers():
        folder = _PACKAGE / name
        if (folder / "__init__.py").exists():  # an old folder may still hold compiled files
            for package in sorted(folder.rglob("__init__.py")):
                yield _row(f"{package.parent.relative_to(_PACKAGE).as_posix()}/", package)
        else:
            yield _row(f"{name}.py", folder.with_suffix(".py"))


def _layers() -> Iterator[str]:
    """The names of the top-level packages, the highest layer first."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for layer in settings["tool"]["importlinter"]["contracts"][0]["layers"]:
        yield from str(layer).split(" | ")


def _row(name: str, module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    summary = " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")
    return f"| [`{name}`](../../shepherd/{name}) | {summary} |"
