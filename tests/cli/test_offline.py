"""`shepherd doctor --offline`: nothing of a day tries to connect, and a try would be seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.examples import PROFILE
from tests.patience import PATIENCE

MEASURE = """
import subprocess, sys
from pathlib import Path
from shepherd.cli.commands.offline.outside import Outside
outside = Outside()
outside.enter(Path(sys.argv[1]))
for code in sys.argv[2:]:
    subprocess.run([sys.executable, "-IS", "-c", code])
outside.prove()
print("\\n".join(outside.tries()))
"""
SHORT_DAY = """
from shepherd.cli.commands.offline import day
import msgspec
whole = msgspec.toml.decode
def shorter(text, type):
    read = whole(text, type=type)
    requests = dict(list(read.requests.items())[:2])
    return msgspec.structs.replace(read, steps=read.steps[1:3], requests=requests)
day.toml.decode = shorter
from shepherd.cli.app import guarded
raise SystemExit(guarded(day.check_offline))
"""


def python(text: str, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=5 * PATIENCE,
    )


TRIES = [
    ("socket.getaddrinfo('updates.example.com', 443)", "updates.example.com (a lookup)"),
    ("socket.create_connection(('203.0.113.5', 443), 0.2)", "203.0.113.5:443 (tcp)"),
    ("socket.create_connection(('203.0.113.5', 1), 0.2)", "203.0.113.5:1 (tcp)"),
    ("socket.socket(2, 2).sendto(b'x', ('198.51.100.1', 4318))", "198.51.100.1:4318 (udp)"),
    ("socket.create_connection(('2001:db8::5', 443), 0.2)", "an address without a route"),
    ("socket.socket(10, 2).sendto(b'x', ('2001:db8::5', 53))", "an address without a route"),
]


@pytest.fixture(scope="module", autouse=True)
def _possible(tmp_path_factory: pytest.TempPathFactory) -> None:
    done = python(MEASURE, str(tmp_path_factory.mktemp("scratch")))
    if "can be made here" in done.stderr:
        pytest.skip("no network of its own can be made here")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_a_try_is_seen_with_its_program(tmp_path: Path) -> None:
    codes = [f"import socket; {code}" for code, _ in TRIES]
    done = python(MEASURE, str(tmp_path), *codes)
    lines = done.stdout.splitlines()
    assert len(lines) == len(TRIES), done.stdout + done.stderr
    for line, (code, where) in zip(lines, TRIES, strict=True):
        assert line.endswith(f"to {where}")
        if "tcp" in where or "lookup" in where:  # these wait for an answer: the program is there
            assert code in line


def test_what_stays_inside_does_not_count(tmp_path: Path) -> None:
    code = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
socket.socketpair()
"""
    assert python(MEASURE, str(tmp_path), code, code).stdout == "\n"


def test_a_try_that_can_not_be_seen_is_no_zero(tmp_path: Path) -> None:
    blind = MEASURE.replace(
        "outside = Outside()",
        "Outside._read = print\nfrom shepherd.cli.commands.offline import outside as room\n"
        "room._PROOF_SECONDS = 0.2\noutside = Outside()",
    )
    done = python(blind, str(tmp_path))
    assert done.returncode == 1
    assert "was not seen" in done.stderr


@pytest.mark.long
def test_a_day_tries_nothing(program: Program) -> None:
    """The whole day in a long run; else answers, tools, and the first APIs."""
    is_long = PROFILE == "long"
    done = program.run("doctor", "--offline") if is_long else python(SHORT_DAY)
    assert done.stdout.splitlines()[-1] == "0 connections tried.", done.stdout + done.stderr
    assert done.returncode == 0
    assert "POST /v1/messages" in done.stdout


def test_code_that_calls_home_is_found_and_a_failed_day_is_no_zero(tmp_path: Path) -> None:
    """Code as a plugin could have: it runs in each start of the program."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket, sys\n"
        "if '-e' in sys.argv:\n"
        "    try:\n        socket.getaddrinfo('home.example.com', 443)\n"
        "    except OSError:\n        pass\n"
    )
    day = SHORT_DAY.replace("read.steps[1:3]", "[read.steps[2], '--nonsense']")
    done = python(day, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    *_, tried = done.stdout.splitlines()
    assert tried.startswith("Tried: ")
    assert "-m shepherd" in tried
    assert tried.endswith(" to home.example.com (a lookup)")
    assert "The day failed" in done.stderr
