"""What becomes of a command when its owner is killed."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.tools.shell.process import Program, run_program

PATIENCE = 60.0
OWNER = """
import asyncio, sys
from pathlib import Path
from shepherd.tools.shell.process import Program, run_program
program = Program(["/bin/sh", "-c", sys.argv[1]], Path.cwd())
asyncio.run(run_program(program, lambda _: True, lambda _: True, 600))
"""


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """Whether the process is there and more than a dead one that nobody has buried."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.parametrize("ignored", ["", "trap '' TERM HUP INT; "])
def test_a_killed_owner_takes_the_command_and_its_children_along(
    tmp_path: Path, ignored: str
) -> None:
    line = f"{ignored}sleep 600 & echo $$ $! > new; mv new pids; wait"
    with subprocess.Popen([sys.executable, "-c", OWNER, line], cwd=tmp_path) as owner:
        _wait_until((tmp_path / "pids").exists)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(_lives, pids))
        owner.kill()
    _wait_until(lambda: not any(map(_lives, pids)))


def test_what_a_command_left_in_the_background_is_not_touched(tmp_path: Path) -> None:
    line = "sleep 600 > /dev/null 2>&1 & echo $! > pid"

    async def run() -> None:
        program = Program(["/bin/sh", "-c", line], tmp_path)
        await run_program(program, lambda _: True, lambda _: True, PATIENCE)

    asyncio.run(run())
    pid = (tmp_path / "pid").read_text().strip()
    try:
        time.sleep(1.2)  # longer than a guard would wait
        assert _lives(int(pid))
    finally:
        subprocess.run(["kill", pid], check=True)
