"""The commands of docs/help.md print what stands there; those of docs/start.md succeed."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shepherd.tools.sandbox.sandbox import find_box
from tests.cli.program import share_measurements
from tests.forked import SHEPHERD, start_forked, write_forking
from tests.patience import PATIENCE

DOCS = Path(__file__).parents[1] / "docs"
SANDBOX = "console sandbox"
DIVIDER = "---next command---"
NOT_RUN = ("launch", "pull", "provider test", "shepherd -p", "--server", "doctor")
"""Steps that need a hub or a vendor, and those that are tried elsewhere."""


def sections(name: str) -> list[tuple[str, str]]:
    """The titles and texts of a page's sections."""
    parts = re.split(r"^## ", (DOCS / name).read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [(title, text) for title, _, text in (part.partition("\n") for part in parts)]


BLOCKS = [
    pytest.param(kind, block, id=f"{title}-{number}")
    for title, section in sections("help.md")
    for number, (kind, block) in enumerate(
        re.findall(r"^```(console[^\n]*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    )
]
STEPS = dict(sections("start.md"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where programs are; `shepherd` runs in a fork."""
    folder = tmp_path_factory.mktemp("programs")
    write_forking(folder / "shepherd")
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def env(tmp_path: Path, path: str) -> dict[str, str]:
    """An empty home, with a directory to work in."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "seen.txt").touch()
    share_measurements(tmp_path)
    return {"PATH": path, "HOME": str(tmp_path), "PWD": str(work), "LC_ALL": "C.UTF-8"}


def run(script: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script],
        cwd=env["PWD"],
        env=env,
        input="sk-test\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


@contextmanager
def server(env: dict[str, str]) -> Generator[int]:
    """The port of a server with the built-in model."""
    process = start_forked(
        [SHEPHERD, "--server", "--port", "0"],
        env,
        cwd=env["PWD"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = (re.search(r"Serving .*:(\d+)/v1", line) for line in process.stdout)
        yield next(int(found[1]) for found in said if found)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a block, with the output that stands below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [
        (command, expected) for command, _, expected in (part.partition("\n") for part in parts)
    ]


def fits(expected: str, printed: str) -> bool:
    """Whether an output is as described: `…` is any text in a line, or any lines."""
    lines = (
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in expected.splitlines()
    )
    return re.fullmatch("".join(lines), printed) is not None


def outputs(block: str, env: dict[str, str]) -> list[str]:
    """What each command of a block prints, one after the other in one shell."""
    lines = (
        f"{{ {command}\n}} < /dev/null; echo; echo '{DIVIDER}'" for command, _ in commands(block)
    )
    printed = run("\n".join(lines), env).stdout.split(f"{DIVIDER}\n")[:-1]
    return [text.rstrip("\n") + "\n" if text.strip() else "" for text in printed]


@pytest.mark.parametrize(("kind", "block"), BLOCKS)
def test_each_command_shows_what_the_page_says(kind: str, block: str, env: dict[str, str]) -> None:
    if "curl" in block and not shutil.which("curl"):
        pytest.skip("there is no curl")
    if kind == SANDBOX and find_box().box is None:
        pytest.skip("no sandbox works here")
    if ":8000" in block:
        with server(env) as port:
            printed = outputs(block.replace(":8000", f":{port}"), env)
    else:
        printed = outputs(block, env)
    wrong = [
        f"{command}\n{text}"
        for (command, expected), text in zip(commands(block), printed, strict=True)
        if not fits(expected, text)
    ]
    assert not wrong, wrong[0]


def test_each_symptom_of_the_table_has_a_section_with_a_command() -> None:
    table = re.findall(r"^\| \[([^]]+)\]", (DOCS / "help.md").read_text("utf-8"), re.MULTILINE)
    shown = [title.lower() for title, section in sections("help.md") if "```console" in section]
    assert [symptom.lower() for symptom in table] == shown


def test_an_output_that_differs_is_seen() -> None:
    assert fits("a …\n…\nz\n", "a b\nc\nd\nz\n")
    assert not fits("a …\nz\n", "a b\nc\nz\n")
    assert not fits("a (1)\n", "a 1\n")


@pytest.mark.parametrize("title", STEPS)
def test_each_step_that_stays_on_this_machine_succeeds(title: str, env: dict[str, str]) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", STEPS[title], re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    lines = [line.replace("NAME", "pup") for line in lines if line.startswith("shepherd ")]
    steps = [line for line in lines if not any(word in line for word in NOT_RUN)]
    assert lines
    for step in steps:
        done = run(step, env)
        assert done.returncode == 0, f"{step}\n{done.stdout}"
