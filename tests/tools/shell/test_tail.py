"""The last lines of a running command, as events."""

import asyncio
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from shepherd.events import CallbackEvent, Event, EventCallback, Topic, ignore_events
from shepherd.messages import ToolCall
from shepherd.tools.shell import output
from shepherd.tools.shell.output import LINES, LiveTail
from shepherd.tools.tool import ToolResult
from tests.flat_events import flat
from tests.tools.workshop import Workshop, open_workshop, until


class Tails:
    """Keeps the contents of OUTPUT events with their times."""

    def __init__(self, *, goes_on: bool = True) -> None:
        self.texts: list[str] = []
        self.times: list[float] = []
        self._goes_on = goes_on

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        assert (kind, name) == (CallbackEvent.SYSTEM, Topic.OUTPUT)
        self.texts.append(content)
        self.times.append(time.monotonic())
        return self._goes_on


def run(workshop: Workshop, line: str, on_event: EventCallback) -> "asyncio.Task[ToolResult]":
    call = ToolCall("1", "execute_command", {"command": line})
    return asyncio.create_task(workshop.runner.run(call, on_event=on_event))


async def test_the_last_lines_are_sent_while_the_command_runs(tmp_path: Path) -> None:
    workshop, tails = open_workshop(tmp_path, secrets={"sk-hunter2": "API_KEY"}), Tails()
    os.mkfifo(workshop.root / "go")
    line = r"seq 9; printf 'sk-hunter2\n\033[31m10%%\r50%%\r60%%'; cat go; echo done"
    task = run(workshop, line, tails)
    await until(lambda: bool(tails.texts) and tails.texts[-1].endswith("60%"))
    assert tails.texts[-1] == "7\n8\n9\n[API_KEY]\n60%"
    assert len(tails.texts[-1].split("\n")) == LINES
    (workshop.root / "go").write_text("")
    assert (await task).content.endswith("60%done")
    count = len(tails.texts)
    await asyncio.sleep(2 * output.SECONDS)
    assert len(tails.texts) == count


async def test_fast_output_sends_no_more_than_a_few_lines_a_second(tmp_path: Path) -> None:
    workshop, tails = open_workshop(tmp_path), Tails()
    task = run(workshop, "while :; do echo x; sleep 0.01; done", tails)
    await until(lambda: len(tails.texts) > 2)
    gaps = [later - earlier for earlier, later in pairwise(tails.times)]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(gap > output.SECONDS / 2 for gap in gaps)


async def test_a_callback_that_refuses_stops_the_command(tmp_path: Path) -> None:
    workshop, tails = open_workshop(tmp_path), Tails(goes_on=False)
    await run(workshop, "while :; do echo x; sleep 0.05; done", tails)
    assert len(tails.texts) == 1


async def test_a_cut_line_or_secret_never_shows_its_rest() -> None:
    tails = Tails()
    live = LiveTail(tails, {"secret-" * 50: "KEY"})
    live.out(b"x" * 4200 + b"\n" + b"secret-" * 50 + b"\nlast")
    live.err(b"\nto stderr")
    await until(lambda: bool(tails.texts))
    assert tails.texts == ["[KEY]\nlast\nto stderr"]
    live.close()
    assert LiveTail(ignore_events, {}).out(b"")
