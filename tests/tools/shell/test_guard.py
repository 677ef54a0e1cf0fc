"""What becomes of a command when its owner is killed."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.tools.program import Program
from shepherd.tools.shell.process import run_program
from tests.patience import PATIENCE
from tests.tools.workshop import is_running

OWNER = """
import asyncio, sys
from pathlib import Path
from shepherd.tools.program import Program
from shepherd.tools.shell.process import run_program
program = Program(["/bin/sh", "-c", sys.argv[1]], Path.cwd())

def hear(_):
    Path("heard").touch()
    return True

asyncio.run(run_program(program, hear, hear, 600))
"""


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("ignored", ["", "trap '' TERM HUP INT; "])
def test_a_killed_owner_takes_the_command_and_its_children_along(
    tmp_path: Path, ignored: str
) -> None:
    line = f"{ignored}sleep 600 & echo $$ $! > pids; echo begun; wait"
    with subprocess.Popen([sys.executable, "-c", OWNER, line], cwd=tmp_path) as owner:
        _wait_until((tmp_path / "heard").exists)  # then it is guarded
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(is_running, pids))
        owner.kill()
    _wait_until(lambda: not any(map(is_running, pids)))


def test_what_a_command_left_in_the_background_is_not_touched(tmp_path: Path) -> None:
    line = "sleep 600 > /dev/null 2>&1 & echo $! > pid"

    async def run() -> None:
        program = Program(["/bin/sh", "-c", line], tmp_path)
        await run_program(program, lambda _: True, lambda _: True, PATIENCE)

    asyncio.run(run())
    pid = (tmp_path / "pid").read_text().strip()
    try:
        time.sleep(1.2)  # longer than a guard would wait
        assert is_running(int(pid))
    finally:
        subprocess.run(["kill", pid], check=True)
