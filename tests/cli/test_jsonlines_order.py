"""What a line does to the work of the one before it, when they are read in this process."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from shepherd.cli.batch import jsonlines
from shepherd.config.load import load_config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.own_commands import INTERRUPTED
from shepherd.conversation.session_start import SessionStart
from tests.cli.test_jsonlines import objects
from tests.patience import PATIENCE, POLL


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[bytes | None]:
    """What stands for the lines of stdin."""
    queue = asyncio.Queue[bytes | None]()

    def read_lines(_descriptor: int) -> asyncio.Queue[bytes | None]:
        return queue

    monkeypatch.setattr(jsonlines, "read_lines", read_lines)
    return queue


def opened(path: Path, script: str) -> AbstractAsyncContextManager[Conversation]:
    """A conversation in this process, in which everything is allowed."""
    (path / "script").write_text(script)
    flags = {"model.name": f"script:{path / 'script'}", "permissions.approve": "all"}
    env = {"HOME": str(path)}
    return open_conversation(load_config(path, {}, flags), env, path, SessionStart())


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        ("prompt", '{"type": "interrupt"}', ("end_turn", "cancelled")),
        ("prompt", '{"type": "steer", "content": "also"}', ("end_turn", "stop")),
        (
            '{"type": "command", "command": "!sleep 600"}',
            '{"type": "interrupt"}',
            ("command_result", INTERRUPTED),
        ),
    ],
)
async def test_a_line_acts_on_the_one_before_it_also_if_both_came_at_once(
    first: str,
    second: str,
    end: tuple[str, str],
    tmp_path: Path,
    lines: asyncio.Queue[bytes | None],
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    for line in (first.encode(), second.encode(), None):
        lines.put_nowait(line)
    async with opened(tmp_path, "text: one") as conversation:
        assert await jsonlines.run_json_lines(conversation) == 0
    items = objects(capsysbinary.readouterr().out.decode())
    ends = [(i["type"], i.get("reason", i.get("content"))) for i in items]
    assert [each for each in ends if each[0] in ("end_turn", "command_result")] == [end]


async def test_a_conversation_ends_while_an_interrupted_turn_ends(
    tmp_path: Path, lines: asyncio.Queue[bytes | None], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = "trap '' TERM; echo on; while :; do sleep 1; done"
    shown = b""
    lines.put_nowait(b"prompt")
    async with opened(
        tmp_path, f'call: execute_command {{"command": "{command}"}}'
    ) as conversation:
        running = asyncio.create_task(jsonlines.run_json_lines(conversation))
        async with asyncio.timeout(PATIENCE):
            while b'"output"' not in shown:
                await asyncio.sleep(POLL)
                shown += capsysbinary.readouterr().out
        lines.put_nowait(b'{"type": "interrupt"}')
        for _ in range(10):  # it is read
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=PATIENCE)
        assert running.cancelled()
