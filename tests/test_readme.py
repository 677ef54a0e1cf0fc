"""Every command of the README runs as it stands there."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.forked import write_forking
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
SHELL = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line]
SERVERS = [line for line in SHELL if "--server" in line]
TASKS = [line for line in SHELL if line.startswith("make ")]
OF_SESSIONS = [line for line in SHELL if "--continue" in line or "sessions" in line]
PLAIN = [line for line in SHELL if line not in {*SERVERS, *TASKS, *OF_SESSIONS}]

ONE_FILE = {
    "PYTEST_ADDOPTS": "tests/test_messages.py -p no:cacheprovider",
    "PYTEST_XDIST_AUTO_NUM_WORKERS": "1",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home with a bigger model where the README has one."""
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(ROOT / "shepherd" / "models" / "pup.gguf", models / "some-model.gguf")
    return tmp_path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where programs are; `shepherd` runs in a fork, but for `make` and servers."""
    folder = tmp_path_factory.mktemp("programs")
    write_forking(folder / "shepherd")
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, path: str) -> Path:
    """A home in which a session was held."""
    home = tmp_path_factory.mktemp("held")
    run("shepherd -e hello", home, home, PATH=path)
    return home


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8"}


def run(command: str, home: Path, cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a line as a user would who types `hello` and then leaves."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env=environment(home) | more,
        input="hello\n",
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )


def test_the_readme_holds_what_is_tested_here() -> None:
    assert len(TASKS) == 2
    assert len(SERVERS) == 2
    assert len(OF_SESSIONS) == 2
    assert len(PLAIN) >= 8
    assert sum(line.startswith("echo ") for line in PLAIN) == 1


@pytest.mark.parametrize("line", PLAIN)
def test_each_command_succeeds(line: str, home: Path, path: str) -> None:
    (home / "seen.txt").touch()
    done = run(line, home, home, PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() or "provider" in line
    if line.startswith("echo "):  # a question from a pipe is answered
        assert "- seen.txt" in done.stdout


@pytest.mark.parametrize("line", OF_SESSIONS)
def test_each_command_about_earlier_sessions_succeeds(line: str, held: Path, path: str) -> None:
    done = run(line, held, held, PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.skipif(BIN.parent != ROOT / ".venv", reason="make works in .venv, these tests do not")
def test_the_two_set_up_commands(home: Path) -> None:
    chat, test = (line.split("#")[0] for line in TASKS)
    answered = run(chat, home, ROOT)
    assert answered.returncode == 0, answered.stderr
    assert "Pup" in answered.stdout
    tested = run(test, home, ROOT, **ONE_FILE)
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout


@contextmanager
def serving(line: str, home: Path) -> Generator[int]:
    """The README's server on a free port."""
    command = line.replace("--port 8000", "") + " --port 0"
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        matches = (re.search(r"http://127\.0\.0\.1:(\d+)", said) for said in process.stdout)
        yield next(int(port[1]) for port in matches if port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def test_the_server_answers_the_python_example(home: Path) -> None:
    (example,) = (block for kind, block in BLOCKS if kind == "python")
    with serving(SERVERS[0], home) as port:
        code = example.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Pup" in done.stdout


def test_the_server_with_keys_starts(home: Path) -> None:
    with serving(SERVERS[1], home) as port:
        assert port > 0
