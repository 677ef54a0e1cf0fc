"""Helpers that are started ahead of time: each command brings all of its own, and they end."""

import contextlib
import marshal
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox import helpers as helper_module
from shepherd.tools.sandbox.boxes.box import Box, Spares
from shepherd.tools.sandbox.boxes.landlock import Landlock
from shepherd.tools.sandbox.boxes.probe import Captured, capture
from shepherd.tools.sandbox.helpers import HelperKind
from shepherd.tools.sandbox.inside.orders import launch
from shepherd.tools.sandbox.profile import Limits, Profile
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import BOXES, make_profile, need

_OWNER = """
import sys
from pathlib import Path
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.probe import capture
from tests.tools.sandbox.boxes import BOXES, make_profile
box = next(box for box in BOXES if box.name == sys.argv[1])
profile = make_profile(Path(sys.argv[2]))
with box.enter(Program(["true"], profile.cwd), profile) as program:
    capture(program, 60)
print("ended", flush=True)
sys.stdin.read()
"""

_SURROUNDINGS = {"new_root": "/", "shared_memory": 0, "processes": None}
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
enclose.enclose(int(sys.argv[1]), bare=True, network=False)
"""


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """A box of its own, without a helper as yet."""
    need(request.param)
    for thread in threading.enumerate():
        if thread.name == "helper":  # for the box that was tried
            thread.join()
    return type(request.param)()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the environment of every helper holds from now on."""
    name = secrets.token_hex(8)
    monkeypatch.setenv("LC_MARK", name)
    return name


def _run(box: Box, profile: Profile, program: Program) -> Captured:
    with box.enter(program, profile) as boxed:
        return capture(boxed, 4 * PATIENCE)


def _marked(mark: str) -> list[int]:
    """The helpers with this mark; a process between fork and exec is not yet one of them."""
    processes: list[int] = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_helper = b"\0-I\0-S\0" in (directory / "cmdline").read_bytes()
            if is_helper and f"LC_MARK={mark}".encode() in (directory / "environ").read_bytes():
                processes.append(int(directory.name))
    return processes


def _spare(mark: str) -> int:
    deadline = time.monotonic() + PATIENCE
    while not _marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    (process,) = _marked(mark)
    return process


def _await_none(mark: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, [Path(f"/proc/{process}/cmdline").read_bytes() for process in left]


def test_a_spare_knows_nothing_of_earlier_commands(box: Box, mark: str, tmp_path: Path) -> None:
    first = make_profile(tmp_path)
    second = replace(first, cwd=first.root / "src", hidden=(first.root / ".git" / "config",))
    line = "echo $KEY; pwd; cat; cat <&$FD; cat ../.env; cat ../.git/config"
    assert _run(box, first, Program(["true"], first.cwd, {**os.environ, "KEY": "1"})).code == 0
    spare = _spare(mark)
    read, write = os.pipe()
    os.write(write, b"from a pipe\n")
    os.close(write)
    (tmp_path / "input").write_text("from a file\n", "utf-8")

    with (tmp_path / "input").open("rb") as stdin, os.fdopen(read):
        environment = {"PATH": os.environ["PATH"], "FD": str(read)}
        argv = ["bash", "-c", line]
        program = Program(argv, second.cwd, environment, stdin=stdin, pass_fds=(read,))
        with box.enter(program, second) as boxed:
            process = boxed.start()
            out, err = process.communicate(timeout=4 * PATIENCE)

    expected = f"\n{second.cwd}\nfrom a file\nfrom a pipe\nKEY=secret-canary\n"
    assert process.pid == spare
    assert out.decode() == expected, err


def test_a_spare_has_no_secrets_in_its_environment(
    box: Box, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret-canary")
    profile = make_profile(tmp_path)
    _run(box, profile, Program(["true"], profile.cwd, {"PATH": os.environ["PATH"]}))

    assert b"canary" not in Path(f"/proc/{_spare(mark)}/environ").read_bytes()


def test_a_dead_spare_is_replaced(box: Box, mark: str, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    program = Program(["echo", "ran"], profile.cwd)
    assert _run(box, profile, program).out == "ran\n"

    spare = _spare(mark)
    os.kill(spare, signal.SIGKILL)
    os.waitid(os.P_PID, spare, os.WEXITED | os.WNOWAIT)  # it stays to be found dead

    assert _run(box, profile, program).out == "ran\n"


def test_a_spare_ends_when_its_owner_is_killed(box: Box, tmp_path: Path) -> None:
    mark = secrets.token_hex(8)  # not for this process, whose own boxes may start a spare now
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, box.name, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "LC_MARK": mark},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ended\n"
        assert _spare(mark)
        owner.kill()

    _await_none(mark)


def test_a_spare_ends_with_its_box(mark: str) -> None:
    spares = Spares()
    spares.refill(HelperKind(launch, Limits()))
    assert _spare(mark)

    del spares

    _await_none(mark)


def test_other_limits_need_another_helper(mark: str) -> None:
    spares = Spares()
    spares.refill(HelperKind(launch, Limits()))
    spare = _spare(mark)
    other = HelperKind(launch, Limits(processes=5))

    with spares.take(other) as helper:
        assert helper.kind == other
        assert spare not in _marked(mark)
    assert not _marked(mark)


def test_a_spare_of_landlock_has_left_all_namespaces_but_that_of_mounts(
    mark: str, tmp_path: Path
) -> None:
    box = Landlock()
    need(box)
    profile = make_profile(tmp_path)
    assert _run(box, profile, Program(["true"], profile.cwd)).code == 0

    spare = _spare(mark)
    deadline = time.monotonic() + PATIENCE
    while _is_shared(spare, "user") and time.monotonic() < deadline:
        time.sleep(0.02)

    kinds = ("user", "ipc", "uts", "net", "mnt")
    assert [kind for kind in kinds if _is_shared(spare, kind)] == ["mnt"]


def _is_shared(process: int, kind: str) -> bool:
    return Path(f"/proc/{process}/ns/{kind}").readlink() == Path(f"/proc/self/ns/{kind}").readlink()


def test_a_command_with_network_gets_no_spare_without(box: Box, mark: str, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = Program(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], profile.cwd)
        codes: list[int] = []
        for network in (False, True, False):
            codes.append(_run(box, replace(profile, network=network), program).code)
            assert _spare(mark)

    assert codes == [1, 0, 1]


def test_a_command_that_is_refused_late_leaves_no_process(
    box: Box, mark: str, tmp_path: Path
) -> None:
    profile = make_profile(tmp_path)
    elsewhere = replace(profile, cwd=Path("/"))
    assert _run(box, profile, Program(["true"], profile.cwd)).code == 0
    spare = _spare(mark)

    with pytest.raises(ToolError, match="does not show"):
        _run(box, elsewhere, Program(["true"], Path("/")))

    assert spare not in _marked(mark)
    assert _run(box, profile, Program(["echo", "ran"], profile.cwd)).out == "ran\n"


def test_nothing_runs_without_its_control_groups(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def broken_groups(_limits: Limits) -> Generator[list[str]]:
        yield [str(tmp_path / "missing" / "cgroup.procs")]

    monkeypatch.setattr(helper_module, "control_groups", broken_groups)
    profile = make_profile(tmp_path)

    with pytest.raises(ToolError, match="can't limit the command"):
        _run(box, profile, Program(["touch", "src/made"], profile.cwd))

    assert not (profile.root / "src" / "made").exists()


def test_a_command_ends_with_a_reaper_that_was_killed_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, helper_module.memory_file(marshal.dumps((_SURROUNDINGS, []))) as values:
            socket.send_fds(ours, [b"!"], [values])
            channel = theirs.fileno()
            argv = [sys.executable, "-c", _KILLS_REAPER, str(channel)]
            reaper = subprocess.Popen(argv, pass_fds=[channel])
        assert reaper.wait(PATIENCE) == -signal.SIGKILL
        ours.settimeout(PATIENCE)
        assert b"child-pid" in ours.recv(1000)
        assert ours.recv(1000) == b""  # no process waits for orders any more
