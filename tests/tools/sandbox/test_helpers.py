"""A command in a box is started by a small program, of which nothing stays behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.boxes.probe import Captured, capture
from shepherd.tools.sandbox.profile import Profile
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import BOXES, make_profile, need

_KILLS_REAPER = """
import os, signal, sys, time
from shepherd.tools.sandbox.inside import enclose, native

control_process = native.control_process

def control_orphan(option, first=0, second=0):
    if option == native.PR_SET_PDEATHSIG:
        reaper = os.getppid()
        os.kill(reaper, signal.SIGKILL)
        while os.getppid() == reaper:
            time.sleep(0.01)
    control_process(option, first, second)

native.control_process = control_orphan
enclose.enclose_bare(info=int(sys.argv[1]), network=False, limits={}, command=["sleep", "60"])
"""


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """Each box that works here."""
    need(request.param)
    return request.param


def _run(box: Box, profile: Profile, program: Program) -> Captured:
    with box.enter(program, profile) as boxed:
        return capture(boxed, 4 * PATIENCE)


def test_a_command_gets_its_own_input_descriptors_and_variables(box: Box, tmp_path: Path) -> None:
    profile = replace(make_profile(tmp_path), cwd=tmp_path / "project/src")
    read, write = os.pipe()
    os.write(write, b"from a pipe\n")
    os.close(write)
    (tmp_path / "input").write_text("from a file\n", "utf-8")

    with (tmp_path / "input").open("rb") as stdin, os.fdopen(read):
        environment = {"PATH": os.environ["PATH"], "FD": str(read)}
        argv = ["bash", "-c", "echo $LC_ALL; pwd; cat; cat <&$FD; ls /proc/self/fd | wc -l"]
        program = Program(argv, profile.cwd, environment, stdin=stdin, pass_fds=(read,))
        ended = _run(box, profile, program)

    # the pipe, the standard ones, and that of `ls` itself
    assert ended.out == f"\n{profile.cwd}\nfrom a file\nfrom a pipe\n5\n", ended.err


def test_a_helper_has_no_secrets_in_its_environment(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret-canary")
    profile = make_profile(tmp_path)
    line = "cat /proc/*/environ /proc/*/cmdline 2>&1 | tr '\\0' '\\n'"
    program = Program(["bash", "-c", line], profile.cwd, {"PATH": os.environ["PATH"], "SEEN": "1"})
    with box.enter(program, profile) as boxed:
        assert "TOKEN" not in (boxed.environment or os.environ)
        out = capture(boxed, 4 * PATIENCE).out
    if box.name != "landlock-bare":  # which shows the processes outside, but not what they hold
        assert "SEEN=1" in out
    assert "canary" not in out


def test_a_command_that_is_refused_late_leaves_nothing(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(ToolError, match="does not show"):
        _run(box, replace(profile, cwd=Path("/")), Program(["true"], Path("/")))
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)
    assert _run(box, profile, Program(["echo", "ran"], profile.cwd)).out == "ran\n"


def test_a_command_ends_with_a_reaper_that_was_killed_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            argv = [sys.executable, "-c", _KILLS_REAPER, str(theirs.fileno())]
            reaper = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        assert reaper.wait(PATIENCE) == -signal.SIGKILL
        ours.settimeout(PATIENCE)
        assert b"child-pid" in ours.recv(1000)
        assert ours.recv(1000) == b""  # no process goes on
