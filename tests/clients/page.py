"""The settings of docs/clients.md: the tests use them as they stand there."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
SERVER = "http://127.0.0.1:8000"
"""The address of the server on the page."""

ROW = re.compile(
    r"^\| \[(?P<client>[^\]]+)\]\(#[\w-]+\) \| (?P<api>[^|]+?) \| (?P<version>[^|]+?) \| [^|]+? \| "
    r"\[[^\]]+\]\((?P<test>[^)]+)\) \|$"
)
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"`~/([^`]+)`[^`]*```\w+\n(.*?)```", re.DOTALL)


@cache
def sections() -> dict[str, str]:
    """The text below each heading."""
    parts = re.split(r"^#{2,3} (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str = "") -> list[tuple[str, str, str]]:
    """The client, the API and the test file of each row of the page, or of a text."""
    matches = map(ROW.match, (text or PAGE.read_text("utf-8")).splitlines())
    return [(row["client"], row["api"], row["test"]) for row in matches if row]


def marks(path: Path) -> set[tuple[str, str]]:
    """The clients and APIs in the marks of a test file."""
    return {
        (client, api)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.client"
        for client, api in [map(ast.literal_eval, node.args)]
    }


def example(client: str, url: str) -> dict[str, Any]:
    """The names that the client's Python example defines, with the server's real address."""
    names: dict[str, Any] = {}
    exec(block(client, "python", url), names)
    return names


def block(client: str, language: str, url: str) -> str:
    """The first block of that language in the client's section."""
    return next(
        text.replace(SERVER, url)
        for name, text in _BLOCK.findall(sections()[client])
        if name == language
    )


def write_files(client: str, url: str, home: Path) -> None:
    """Write the files that the client's section shows into a home."""
    for name, text in _FILE.findall(sections()[client]):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(SERVER, url))


def run(client: str, url: str, directory: Path, arguments: Sequence[str]) -> str:
    """What the client's program prints, run with the settings of its section.

    The program is the last line of the section's commands; its home is in the directory.
    """
    home = directory / "home"
    home.mkdir(exist_ok=True)
    write_files(client, url, home)
    *settings, command = block(client, "bash", url).rstrip().splitlines()
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join([*settings, f'exec {command} "$@"']), "bash", *arguments],
        check=False,
        cwd=directory,
        env={"PATH": programs, "HOME": str(home), "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
