"""execute_command with real processes."""

import asyncio
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.tools.shell.output import CappedOutput
from shepherd.tools.text import plain_text
from tests.patience import PATIENCE
from tests.tools.workshop import Workshop, is_running, open_workshop, until


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo hello", "hello"),
        ("echo out; echo err >&2", "out\n[stderr]\nerr"),
        ("echo err >&2; exit 3", "[stderr]\nerr\n[exit code 3]"),
        ("true", "(no output)"),
        ("false", "(no output)\n[exit code 1]"),
        ("kill -9 $$", "(no output)\n[exit code 137]"),
        ("cat", "(no output)"),
        ("printf 'a\\0b\\377c'", "ab\ufffdc"),
        ("printf '\\033[31mred\\033[0m \\033]0;title\\007x'", "red x"),
        ("printf '10%%\\r50%%\\r100%%\\ndone'", "100%\ndone"),
        (["echo", "a b", "$HOME", "*"], "a b $HOME *"),
        (["no-such-program", "x"], "Error: command not found: no-such-program"),
        ("no-such-program 2>/dev/null", "(no output)\n[exit code 127]"),
        ("[ -t 0 ] || [ -t 1 ] || echo no terminal", "no terminal"),
    ],
)
async def test_results(workshop: Workshop, command: str | list[str], expected: str) -> None:
    result = await workshop.result("execute_command", command=command)
    assert result.content == expected
    assert result.ok == ("[exit code" not in expected and "Error" not in expected)


async def test_the_directory(workshop: Workshop) -> None:
    (workshop.root / "sub").mkdir()
    assert (
        await workshop.call("execute_command", command="pwd", cwd="sub") == f"{workshop.root}/sub"
    )
    text = await workshop.call("execute_command", command="pwd", cwd="gone")
    assert text == "Error: no such directory: gone"


async def test_the_environment(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, environment={"ANSWER": "42"})
    assert await workshop.call("execute_command", command="echo $ANSWER $TERM") == "42 dumb"


@pytest.mark.parametrize("command", ["", "  ", [], [""], ["a\0"]])
async def test_nothing_to_run(workshop: Workshop, command: object) -> None:
    text = await workshop.call("execute_command", command=command)
    assert text.startswith("Error: bad arguments for execute_command: command: ")


async def timed_out(workshop: Workshop, command: str, begun: Callable[[str], bool]) -> str:
    """What a command said that its timeout ended, but not before it had `begun`."""
    for seconds in (0.3, 1, 4, 16, 64):
        text = await workshop.call("execute_command", command=command, timeout=seconds)
        assert text.endswith(f"[timed out after {seconds} s]")
        if begun(text):
            return text
    raise AssertionError("it never began")


async def test_a_timeout_ends_the_whole_group(workshop: Workshop) -> None:
    pids = workshop.root / "pids"
    command = "echo before; sleep 600 & echo $! > tmp; mv tmp pids; sleep 600"
    text = await timed_out(workshop, command, lambda _: pids.exists())
    assert text.startswith("before\n[timed out")
    pid = int(pids.read_text())
    await until(lambda: not is_running(pid))


async def test_what_ignores_sigterm_is_killed(workshop: Workshop) -> None:
    pids = workshop.root / "pids"
    command = "trap '' TERM; echo $$ > tmp; mv tmp pids; while :; do sleep 1; done"
    await timed_out(workshop, command, lambda _: pids.exists())
    pid = int(pids.read_text())
    await until(lambda: not is_running(pid))


async def test_cancelling_ends_the_whole_group(workshop: Workshop) -> None:
    pids = workshop.root / "pids"
    command = "sleep 60 & echo $! $$ > tmp; mv tmp pids; wait"
    task = asyncio.create_task(workshop.call("execute_command", command=command))
    await until(pids.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids.read_text().split():
        await until(lambda pid=pid: not is_running(int(pid)))


async def test_a_background_child_does_not_hold_the_call(workshop: Workshop) -> None:
    command = "sleep 600 & echo $! > pid; echo started"
    text = await asyncio.wait_for(workshop.call("execute_command", command=command), PATIENCE)
    assert text == "started"
    pid = (workshop.root / "pid").read_text().strip()
    assert is_running(int(pid))
    await workshop.call("execute_command", command=f"kill {pid}")


def mode_and_text(path: Path) -> tuple[int, str]:
    return stat.S_IMODE(path.stat().st_mode), path.read_text()


async def test_long_output_is_kept_in_a_private_file(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, output_bytes=4000)
    text = await workshop.call("execute_command", command="seq 1 20000; echo end")
    assert len(text) < 5000
    match = re.search(r"^\[(\d+) bytes cut here; all of it is in (.*)\]$", text, re.MULTILINE)
    assert match is not None
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n20000\nend")
    mode, whole = await asyncio.to_thread(mode_and_text, Path(match[2]))
    assert mode == 0o600
    assert whole == "".join(f"{n}\n" for n in range(1, 20001)) + "end\n"
    assert workshop.request_count == 0
    read = await workshop.call("read_file", path=match[2], offset=19_999)
    assert read == "19999\n20000\nend"


async def test_endless_output_ends_with_the_timeout(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, output_bytes=3000)
    text = await timed_out(workshop, "yes", lambda text: len(text) > 2000)
    assert "y\n[timed out" in text
    assert len(text) < 4000


async def test_many_at_once(workshop: Workshop) -> None:
    calls = [workshop.call("execute_command", command=f"echo {n}; exit {n}") for n in range(8)]
    texts = await asyncio.gather(*calls)
    assert texts == ["0", *(f"{n}\n[exit code {n}]" for n in range(1, 8))]


def test_nothing_is_left_open() -> None:
    """A whole program, so that every warning about a leaked pipe or process is seen."""
    code = """
import asyncio, gc, os, sys, tempfile
from pathlib import Path
from tests.tools.workshop import open_workshop
async def main():
    w = open_workshop(Path(tempfile.mkdtemp()))
    await w.call("execute_command", command="echo x; sleep 9 &")
    await w.call("execute_command", command="sleep 9", timeout=0.05)
    task = asyncio.create_task(w.call("execute_command", command="sleep 9"))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gc.collect()
    print(len(os.listdir("/proc/self/fd")))
asyncio.run(main(), debug=False)
"""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )
    assert "Warning" not in done.stderr
    assert int(done.stdout) < 12


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(9, 60))
@example([b"\0\0\0\0\x1b]", b"\0" * 13], 18)
def test_capped_output_loses_nothing(tmp_path: Path, chunks: list[bytes], limit: int) -> None:
    data = b"".join(chunks)
    output = CappedOutput(limit, tmp_path)
    for chunk in chunks:
        assert output.feed(chunk)
    text = output.text()
    whole = plain_text(data.decode("utf-8", "replace"))
    if len(data) <= limit:
        assert text == whole
    else:
        path = re.search(r"all of it is in (.*)\]", text)
        assert path is not None
        assert Path(path[1]).read_bytes() == data
        Path(path[1]).unlink()
    assert list(tmp_path.iterdir()) == []


async def test_a_rule_for_a_command_holds_in_the_working_directory_only(tmp_path: Path) -> None:
    rules = ["allow shell pwd", "allow read /**"]
    workshop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=rules)
    (workshop.root / "sub").mkdir()
    for cwd, allowed in ((".", True), ("sub", True), ("../outside", False), ("/", False)):
        for command in ("pwd", ["pwd"]):
            result = await workshop.result("execute_command", command=command, cwd=cwd)
            assert result.ok is allowed
