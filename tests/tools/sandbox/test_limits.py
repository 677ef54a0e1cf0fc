"""Limits hold, and nothing outlives a command, however it ends."""

import asyncio
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Limits, Profile
from shepherd.tools.sandbox.view.private import private_files, remove_stale, remove_tree
from shepherd.tools.shell.process import Exit, run_program
from tests.patience import PATIENCE
from tests.tools.sandbox.boxes import BOXES, make_profile, need, run_in
from tests.tools.users import as_ordinary_user

_PYTHON = os.path.realpath(sys.executable)
_FORKS = """
import os, time
children = 0
try:
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
except OSError:
    pass
print(children)
"""
_OWNER = """
import asyncio, sys
from pathlib import Path
from shepherd.tools.program import Program
from tests.tools.sandbox.boxes import BOXES, make_profile
from shepherd.tools.shell.process import run_program
box = next(box for box in BOXES if box.name == sys.argv[1])
profile = make_profile(Path(sys.argv[2]))
async def main():
    with box.enter(Program(["bash", "-c", sys.argv[3]], profile.cwd), profile) as program:
        await run_program(program, print, print, 600)
asyncio.run(main())
"""


@pytest.fixture(params=BOXES, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Box:
    """Each box that works here."""
    need(request.param)
    return request.param


def _limited(base: Path, limits: Limits) -> Profile:
    return replace(make_profile(base), limits=limits)


def _need_bounded_processes(box: Box) -> None:
    """As root, RLIMIT_NPROC does not count: numbers of processes of our own do."""
    release = os.uname().release.split(".")
    has_own_numbers = box.name != "landlock-bare" and (int(release[0]), int(release[1])) >= (6, 14)
    if os.geteuid() == 0 and not has_own_numbers:
        pytest.skip("root's processes have no bound in this box")


def _with_mark(mark: str) -> list[int]:
    marked: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                marked.append(int(path.parent.name))
        except OSError:
            continue
    return marked


def _has_ended(mark: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while _with_mark(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _with_mark(mark)


def test_files_memory_and_time_have_limits(box: Box, tmp_path: Path) -> None:
    limits = Limits(memory=200 << 20, file_size=1 << 20, open_files=40, cpu_seconds=1)
    profile = _limited(tmp_path, limits)
    hog = f"{_PYTHON} -I -S -c 'bytearray(300 << 20)'"
    files = f"{_PYTHON} -I -S -c 'print(len([open(\"/dev/null\") for _ in range(99)]))'"

    file = run_in(box, profile, "head -c 2000000 /dev/zero > src/big")
    memory = run_in(box, profile, hog)
    opened = run_in(box, profile, files)
    spin = run_in(box, profile, "while :; do :; done")

    assert file.code != 0
    assert (profile.root / "src" / "big").stat().st_size <= 1 << 20
    assert memory.code != 0
    assert "Too many open files" in opened.err
    assert spin.code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL)


def test_processes_have_a_limit(box: Box, tmp_path: Path) -> None:
    _need_bounded_processes(box)

    ended = run_in(
        box, _limited(tmp_path, Limits(processes=60)), [_PYTHON, "-I", "-S", "-c", _FORKS]
    )

    assert 10 < int(ended.out) <= 360


async def test_a_fork_bomb_ends_with_its_command(box: Box, tmp_path: Path) -> None:
    _need_bounded_processes(box)
    mark = f"MARK={secrets.token_hex(8)}"
    bomb = "bomb() { bomb | bomb & }; bomb; sleep 30"

    await _run(box, _limited(tmp_path, Limits(processes=40)), bomb, mark, 1.0)

    assert _has_ended(mark)


async def _run(
    box: Box, profile: Profile, line: str, mark: str, seconds: float
) -> tuple[Exit, bytes]:
    out = bytearray()

    def take(data: bytes) -> bool:
        out.extend(data)
        return True

    name, _, value = mark.partition("=")
    program = Program(["bash", "-c", line], profile.cwd, {**os.environ, name: value})
    with box.enter(program, profile) as boxed:
        ended = await run_program(boxed, take, take, seconds)
    return ended, bytes(out)


async def test_the_end_of_time_reaches_the_inside_gently(box: Box, tmp_path: Path) -> None:
    mark = f"MARK={secrets.token_hex(8)}"
    line = 'trap "echo cleaned up; exit 3" TERM; echo ready; sleep 60 & wait'

    ended, out = await _run(box, make_profile(tmp_path), line, mark, 2.0)

    assert ended.timed_out
    assert b"cleaned up" in out
    assert _has_ended(mark)


async def test_who_does_not_listen_is_killed(box: Box, tmp_path: Path) -> None:
    mark = f"MARK={secrets.token_hex(8)}"
    line = "trap '' TERM INT HUP; setsid bash -c \"trap '' TERM; sleep 60\" & sleep 60; sleep 60"

    ended, _out = await _run(box, make_profile(tmp_path), line, mark, 0.5)

    assert ended.timed_out
    assert _has_ended(mark)


async def test_cancelling_leaves_nothing(box: Box, tmp_path: Path) -> None:
    mark = f"MARK={secrets.token_hex(8)}"
    line = "(setsid sleep 60 &); touch src/ready; sleep 60"
    profile = make_profile(tmp_path)
    task = asyncio.create_task(_run(box, profile, line, mark, 600))
    while not (profile.root / "src" / "ready").exists():
        await asyncio.sleep(0.02)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert _has_ended(mark)


def test_nothing_outlives_a_killed_owner(box: Box, tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    ready = tmp_path / "project" / "src" / "ready"
    line = "(setsid sleep 600 &); touch src/ready; sleep 600"
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, box.name, str(tmp_path), line],
        env={**os.environ, "MARK": mark},
    )
    deadline = time.monotonic() + PATIENCE
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    owner.kill()
    owner.wait()

    assert ready.exists()
    assert _has_ended(mark)


def test_the_exit_code_is_that_of_the_command(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)

    assert run_in(box, profile, "exit 7").code == 7
    assert run_in(box, profile, "kill -9 $$").code == 128 + signal.SIGKILL
    assert run_in(box, profile, ["no-such-program"]).code == 127


def test_what_another_process_has_removed_changes_nothing_around_it(tmp_path: Path) -> None:
    """As root, the directory around it may be everybody's /tmp."""
    tmp_path.chmod(0o755)

    remove_tree(tmp_path / "gone")

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_closed_directories_in_each_other_are_removed() -> None:
    base = Path(tempfile.mkdtemp(prefix="shepherd-test-"))
    for number in range(30):
        place = base / "a" / str(number) / "b"
        (place / "c").mkdir(parents=True)
        for directory in (place / "c", place, place.parent):
            directory.chmod(0)

    as_ordinary_user(base, lambda: remove_tree(base / "a"))

    assert not [*base.iterdir()]
    base.rmdir()


def test_deep_directories_beside_closed_ones_are_removed() -> None:
    base = Path(tempfile.mkdtemp(prefix="shepherd-test-"))

    def work() -> None:
        for number in range(20):  # some of them come after the deep one
            (base / "a" / str(number) / "in").mkdir(parents=True)
            (base / "a" / str(number)).chmod(0)
        here = os.open(base / "a", os.O_RDONLY)
        for _depth in range(3000):  # more than Python's stack
            os.mkdir("d", dir_fd=here)
            here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
            os.close(above)
        os.close(here)
        remove_tree(base / "a")

    as_ordinary_user(base, work)

    assert not [*base.iterdir()]
    base.rmdir()


def test_what_killed_sessions_left_is_removed() -> None:
    stale = Path(tempfile.mkdtemp(prefix="shepherd-box-"))
    (stale / "tmp").mkdir()
    (stale / "lock").touch()

    with private_files() as used:
        remove_stale()
        assert used.temp.is_dir()

    assert not stale.exists()
    assert not used.base.exists()


_CLEANING = """
import fcntl, sys
from shepherd.tools.sandbox.view.private import private_files, remove_stale, remove_tree

begun = []

def clean_once(event, arguments):
    if event == "fcntl.flock" and not begun:
        begun.append(event)
        remove_stale()

sys.addaudithook(clean_once)
with private_files() as files:
    print(begun, files.temp.is_dir())
"""


def test_a_session_that_begins_meanwhile_keeps_the_files_of_a_command(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", _CLEANING]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "['fcntl.flock'] True\n", done.stderr


_HOLDS = """
import fcntl, os, sys
for name in sys.argv[1:]:
    try:
        file = os.open(name, os.O_RDONLY)
    except OSError:
        continue
    for take in (
        lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB),
        lambda: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
        lambda: fcntl.fcntl(file, 1024, fcntl.F_RDLCK),
    ):
        try:
            take()
            print("held", name)
        except OSError:
            pass
print("ready", flush=True)
sys.stdin.read()
"""
_LOCK_FILES = ["/etc/.pwd.lock", "/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend"]


def test_no_file_of_the_system_is_held(box: Box, tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    names = [name for name in _LOCK_FILES if os.access(name, os.W_OK)]  # those of root
    (profile.root / "own").write_text("")
    program = Program([_PYTHON, "-I", "-S", "-c", _HOLDS, "own", *names], profile.cwd)
    with box.enter(program, profile) as boxed, boxed.start() as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"ready\n")
        held = [line for line in lines if line == b"held own\n"]
        try:
            for name in names:
                with Path(name).open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            process.kill()
    assert len(held) == 2  # locks, which many programs need, but no lease
