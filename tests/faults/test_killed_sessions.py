"""Whole sessions end by SIGKILL at any moment; what they kept is whole and the next goes on."""

import os
import random
import shutil
import signal
import subprocess

import pytest

from tests.cli.program import Program
from tests.faults.homes import CACHE, check_home, databases, states

KILLS = int(os.environ.get("KILLED_SESSIONS", "3"))
"""`make test-long` asks for 100."""

SMALL = ["--set", "llamacpp.context_size=768", "--set", "llamacpp.threads=1"]
"""A context that overflows, so that messages go to the memory."""

PROMPT = '{"type": "user", "content": "remember the number %d: ' + "one two three four " * 22 + '"}'


def kill_one(program: Program, chance: random.Random, lines: int, *arguments: str) -> None:
    """A session that is killed some time after it has written `lines` lines."""
    process = program.start("--json", *SMALL, *arguments)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for number in range(6):
            process.stdin.write(PROMPT % number + "\n")
        process.stdin.flush()
        if chance.random() < 0.3:
            process.stdin.close()
        while lines and process.stdout.readline():
            lines -= 1
        try:
            process.wait(chance.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


def answer(program: Program, prompt: str) -> str:
    done = program.run("-e", prompt, *SMALL, "--set", "sampling.temperature=0")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_sessions_that_are_killed_leave_a_sound_home(program: Program) -> None:
    chance = random.Random(7)
    kill_one(program, chance, 15)
    for _ in range(KILLS - 1):
        arguments = ["--continue"] if chance.random() < 0.5 else []
        kill_one(program, chance, chance.choice([0, 1, 3, 8, 15]), *arguments)
        check_home(program.home)
    done = program.run("--continue", "-e", "hello", *SMALL)
    assert done.returncode == 0, done.stderr
    check_home(program.home)
    warm = answer(program, PROMPT % 1)
    assert states(program.home)
    assert databases(program.home)
    shutil.rmtree(program.home / CACHE)
    assert warm == answer(program, PROMPT % 1)
