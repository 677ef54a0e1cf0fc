"""Commands that go on after their call: their output, their limits, their end."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.events import Event, Topic
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.program import Program
from shepherd.tools.shell.background import (
    MAX_KEPT,
    MAX_RUNNING,
    BackgroundCommand,
    BackgroundCommands,
    CommandLog,
)
from shepherd.tools.shell.output import Redactor
from shepherd.tools.shell.process import ConfinedProgram
from shepherd.tools.tool import ToolResult
from tests.examples import examples
from tests.flat_events import flat
from tests.patience import PATIENCE
from tests.tools.workshop import Workshop, is_running, open_workshop, until


def open_background(
    base: Path, when_ended: Callable[[BackgroundCommand], None] | None = None, **options: object
) -> tuple[Workshop, BackgroundCommands]:
    commands = BackgroundCommands(when_ended)
    return open_workshop(base, background=commands, **options), commands  # pyright: ignore[reportArgumentType]


async def start(workshop: Workshop, line: str) -> str:
    return await workshop.call("execute_command", command=line, background=True)


async def check(workshop: Workshop, id: str = "1", **arguments: object) -> str:
    return await workshop.call("check_command", id=id, **arguments)


def body(text: str) -> str:
    """A result without its first line, which has a time."""
    return text.partition("\n")[2]


async def test_a_command_goes_on_and_its_new_output_is_read_piece_by_piece(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path)
    os.mkfifo(workshop.root / "go")
    started = await start(workshop, "echo one; cat go; echo err >&2; exit 3")
    assert started.startswith("[command 1 (echo one; cat go; echo err >&2; exit 3): running for ")
    await until(lambda: commands.find("1").log.end == 4)
    assert body(started) in ("one", "(no new output)")
    await check(workshop)
    assert body(await check(workshop)) == "(no new output)"
    (workshop.root / "go").write_text("two\n")
    ended = await check(workshop, wait=PATIENCE)
    assert "ended with exit code 3 after" in ended.splitlines()[0]
    assert body(ended) == "two\nerr"
    assert body(await check(workshop, offset=2)) == "e\ntwo\nerr"
    assert (await workshop.call("check_command")).startswith("command 1 (echo one;")
    await commands.aclose()


async def test_the_user_sees_the_last_lines_while_the_model_waits(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path)
    os.mkfifo(workshop.root / "go")
    await start(workshop, "cat go; sleep 3600")
    shown: list[tuple[str, str]] = []

    def see(event: Event) -> bool:
        _, content, name, _ = flat(event)
        shown.append((content, name))
        return False

    call = ToolCall("1", "check_command", {"id": "1", "wait": PATIENCE})
    waiting = asyncio.create_task(workshop.runner.run(call, on_event=see))
    (workshop.root / "go").write_text("\n".join("123456"))
    result = await waiting  # ends because the callback refuses
    assert shown == [("2\n3\n4\n5\n6", Topic.OUTPUT)]
    assert body(result.content) == "1\n2\n3\n4\n5\n6"
    await commands.aclose()


async def test_it_is_told_once_that_a_command_has_ended_unless_that_is_known(
    tmp_path: Path,
) -> None:
    ends: list[str] = []
    workshop, commands = open_background(tmp_path, lambda command: ends.append(command.id))
    os.mkfifo(workshop.root / "go")
    await start(workshop, "true")  # its end is in the first result
    await start(workshop, "cat go")
    await start(workshop, "sleep 3600")
    await start(workshop, "sleep 3600")
    (workshop.root / "go").write_text("x")
    await until(lambda: bool(ends))
    assert (
        (await check(workshop, "3", kill=True))
        .splitlines()[0]
        .startswith("[command 3 (sleep 3600): killed after")
    )
    await commands.kill(commands.find("4"), by_user=True)
    await until(lambda: len(ends) == 2)
    assert ends == ["2", "4"]
    await commands.aclose()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": ["no-such-program"]}, "failed: command not found: no-such-program"),
        ({"command": "echo x; exit 7"}, "ended with exit code 7"),
        ({"command": "sleep 3600", "timeout": 0.1}, "timed out after 0.1 s"),
    ],
)
async def test_a_command_that_fails_at_once_says_so_in_the_first_result(
    tmp_path: Path, arguments: dict[str, object], text: str
) -> None:
    workshop, commands = open_background(tmp_path)
    result = await workshop.result("execute_command", background=True, **arguments)
    if "timed out" in text:
        result = await workshop.result("check_command", id="1", wait=PATIENCE)
    assert text in result.content.splitlines()[0]
    assert not result.ok
    await commands.aclose()


async def test_the_rules_are_those_of_commands(tmp_path: Path) -> None:
    workshop, commands = open_background(
        tmp_path, mode=ApproveMode.ASK, answers=[Choice.DENY], rules=["deny execute_command rm *"]
    )
    assert await start(workshop, "touch x") == "Error: denied by the user"
    assert workshop.approver.requests[0].preview == "touch x\n(in the background)"
    assert (await start(workshop, "rm x")).startswith("Error: denied by rule")
    assert commands.all == []


async def test_without_a_conversation_there_are_none(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path)
    assert (await start(workshop, "true")).startswith("Error: there are no background commands")
    assert (await check(workshop)).startswith("Error: there are no background commands")


async def test_the_numbers_of_commands_are_limited(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path)
    started = [start(workshop, "sleep 3600") for _ in range(MAX_RUNNING)]
    await asyncio.gather(*started)
    assert (await start(workshop, "true")).startswith(f"Error: {MAX_RUNNING} background commands")
    await asyncio.gather(*(commands.kill(command) for command in commands.all))
    for _ in range(MAX_KEPT):
        await start(workshop, "echo x")
    assert len(commands.all) == MAX_KEPT
    assert await check(workshop) == (
        "Error: there is no background command '1'; there are: "
        + ", ".join(str(number) for number in range(MAX_RUNNING + 1, MAX_RUNNING + MAX_KEPT + 1))
    )
    assert len(list((tmp_path / "spill").iterdir())) == MAX_KEPT
    await commands.aclose()
    assert list((tmp_path / "spill").iterdir()) == []
    assert (await start(workshop, "true")) == "Error: not started: the conversation is ending"


async def test_the_end_of_the_conversation_ends_them_with_their_children(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path)
    await start(workshop, "sleep 3600 & echo $$ $! > pids; wait")
    await until((workshop.root / "pids").exists)
    pids = [int(pid) for pid in (workshop.root / "pids").read_text().split()]
    assert all(map(is_running, pids))
    await commands.aclose()
    assert not any(map(is_running, pids))


async def test_stopping_the_call_that_starts_one_ends_it(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path)
    call = ToolCall("1", "execute_command", {"command": "sleep 3600", "background": True})
    task: asyncio.Task[ToolResult] = asyncio.create_task(workshop.runner.run(call))
    await until(lambda: bool(commands.all))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not commands.all[0].is_running


async def test_secrets_never_reach_the_log_or_the_model(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path, secrets={"sk-hunter2-hunter2": "SOME_API_KEY"})
    line = "printf sk-hunter2; sleep 0.1; printf -- '-hunter2\\nsk-hunter2-'"
    await start(workshop, line)
    result = await check(workshop, wait=PATIENCE, offset=0)
    assert body(result) == "[SOME_API_KEY]\nsk-hunter2-"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "spill").iterdir())
    assert b"sk-hunter2-hunter2" not in stored
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "spill").iterdir())
    await commands.aclose()


async def test_no_part_of_a_private_key_is_read_without_a_question(tmp_path: Path) -> None:
    workshop, commands = open_background(tmp_path, mode=ApproveMode.EDITS)
    line = "printf -- '-----BEGIN RSA PRIV'; sleep 0.1; printf 'ATE KEY-----\\nMIIBsecret\\nend\\n'"
    command = await commands.start(
        ConfinedProgram(Program(["bash", "-c", line], workshop.root), None, PATIENCE),
        line, tmp_path / "spill", {},
    )  # fmt: skip
    await commands.wait(command, PATIENCE)
    for offset in (None, 0, 32, 40):
        result = await check(workshop, offset=offset)
        assert result.startswith("Error: the call has run, but its result holds a private key")
    assert workshop.request_count == 4
    await commands.aclose()


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(["abc", "abcabd", "b", "x"]), max_size=12).map("".join),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_a_secret_is_replaced_however_the_stream_is_cut(text: str, cuts: list[int]) -> None:
    redactor = Redactor({"abcabd": "S"})
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [redactor.feed(text[a:b].encode()) for a, b in pairwise(bounds)]
    assert b"".join([*pieces, redactor.finish()]).decode() == text.replace("abcabd", "[S]")


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 30), max_size=12), st.integers(0, 150), st.integers(1, 40))
def test_a_log_keeps_the_newest_bytes_at_their_places(
    sizes: list[int], offset: int, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, text = CommandLog(Path(folder), {}, kept_bytes=32), ""
        for number, size in enumerate(sizes):
            piece = (chr(ord("a") + number) * size)[:-1] + "\n" * bool(size)
            text += piece
            log.feed(piece.encode())
        assert log.end == len(text)
        assert log.begin <= max(0, len(text) - 32)
        assert len([*Path(folder).iterdir()]) <= 2
        excerpt = log.read(offset, limit)
        assert excerpt.begin == min(max(offset, log.begin), log.end)
        assert excerpt.text == text[excerpt.begin : excerpt.end]
        whole = text[excerpt.begin : excerpt.begin + limit]
        assert excerpt.text == whole or excerpt.text.endswith("\n") or "\n" not in whole
        assert (excerpt.end > excerpt.begin) == bool(whole)
        log.close()
        assert [*Path(folder).iterdir()] == []


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.tools.sandbox.boxes import BOXES, make_profile
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.probe import probe
from shepherd.tools.sandbox.sandbox import Confinement
from shepherd.tools.shell.background import BackgroundCommands
from shepherd.tools.shell.process import ConfinedProgram

async def main():
    base, mark = Path(sys.argv[1]), sys.argv[2]
    profile = make_profile(base)
    commands = BackgroundCommands()
    boxes = [None, *(box for box in BOXES if probe(box).ok)]
    for number, box in enumerate(boxes):
        line = f"trap '' TERM; sleep {mark}{number} & sleep {mark}{number}"
        program = Program(["bash", "-c", line], profile.cwd)
        confinement = None if box is None else Confinement(box, profile)
        await commands.start(ConfinedProgram(program, confinement, 600), line, base, {})
    print(len(boxes), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def processes_with(mark: str) -> list[int]:
    """The processes that sleep for a time that begins with `mark`."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and words[1].startswith(mark.encode()):
            found.append(int(path.parent.name))
    return found


def test_kill_9_leaves_no_process_in_any_box(tmp_path: Path) -> None:
    mark = f"9{os.getpid()}."
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), mark], cwd=root, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        boxes = int(owner.stdout.readline())
        assert boxes >= 1
        asyncio.run(until(lambda: len(processes_with(mark)) == 2 * boxes))
        owner.kill()
    asyncio.run(until(lambda: processes_with(mark) == []))
