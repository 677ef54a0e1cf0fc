"""The user's own commands: what they are allowed, and what the model reads of them."""

import asyncio
import threading
from pathlib import Path

import pytest

from shepherd.conversation.own_commands import HELD_BACK, INTERRUPTED, MAX_SHARED, OwnCommands
from shepherd.events import ignore_events
from shepherd.messages import Role
from tests.patience import PATIENCE
from tests.tools.workshop import is_running, until


def open_commands(base: Path, context_size: int = 0, **secrets: str) -> OwnCommands:
    named = {secret: name for name, secret in secrets.items()}
    return OwnCommands(base, base / "spill", named, lambda: context_size)


async def test_the_output_goes_with_one_prompt_if_it_is_shared(tmp_path: Path) -> None:
    commands = open_commands(tmp_path)
    first = await commands.run("echo $0 >&2; pwd; exit 3", ignore_events, shared=True)
    assert (first.end, first.ok) == ("ended with exit code 3", False)
    assert first.output.split("\n")[1:] == [str(tmp_path)]
    hidden = await commands.run("echo hidden", ignore_events, shared=False)
    assert (hidden.output, hidden.ok) == ("hidden", True)
    await commands.run("true", ignore_events, shared=True)
    text = await commands.preface()
    assert text.startswith("The user ran `echo $0 >&2; pwd; exit 3` in a shell, and it ended with")
    assert text.endswith("The user ran `true` in a shell, and it ended with exit code 0. Its "
                         "output:\n(no output)")  # fmt: skip
    assert "hidden" not in text
    assert await commands.preface() == ""


async def test_the_model_reads_no_secret(tmp_path: Path) -> None:
    commands = open_commands(tmp_path, SOME_API_KEY="sk-hunter2-hunter2")
    shown = await commands.run("echo sk-hunter2-hunter2", ignore_events, shared=True)
    assert shown.output == "sk-hunter2-hunter2"
    key = "-----BEGIN OPENSSH PRIVATE KEY-----"
    (tmp_path / "key").write_text(key)
    await commands.run("cat key", ignore_events, shared=True)
    text = await commands.preface()
    assert "hunter2" not in text
    assert "`echo [SOME_API_KEY]`" in text
    assert key not in text
    assert HELD_BACK in text


@pytest.mark.parametrize("context_size", [0, 2048])
async def test_outputs_take_a_limited_part_of_the_context(
    tmp_path: Path, context_size: int
) -> None:
    commands, limit = open_commands(tmp_path, context_size), context_size or MAX_SHARED
    await commands.run("echo first", ignore_events, shared=True)
    for _ in range(2):
        shown = await commands.run("yes wide | head -c 50000", ignore_events, shared=True)
        assert len(shown.output) > 49_000
    text = await commands.preface()
    assert text.startswith("(Outputs of earlier commands are left out.)")
    assert limit / 2 < len(text) < limit + 1000
    assert "bytes cut here" in text


async def test_a_stopped_command_ends_with_its_children_and_its_output_is_shared(
    tmp_path: Path,
) -> None:
    commands = open_commands(tmp_path)
    line = "echo begun; sleep 3600 & echo $! > pid; wait"
    task = asyncio.create_task(commands.run(line, ignore_events, shared=True))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pid)
    assert commands.last is not None
    assert commands.last.end == INTERRUPTED
    text = await commands.preface()
    assert f"it {INTERRUPTED}. Its output:" in text


async def test_a_command_that_is_cancelled_at_its_very_end_has_ended(tmp_path: Path) -> None:
    """No earlier command is taken for the one that was stopped."""
    shares, go = threading.Event(), threading.Event()

    def context_size() -> int:
        """Asked for in the thread that shares an output."""
        shares.set()
        go.wait(PATIENCE)
        return 0

    commands = OwnCommands(tmp_path, tmp_path / "spill", {}, context_size)
    go.set()
    await commands.run("echo earlier", ignore_events, shared=True)
    shares.clear()
    go.clear()
    task = asyncio.create_task(commands.run("echo late", ignore_events, shared=True))
    await until(shares.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert commands.last is not None
    assert (commands.last.output, commands.last.ok) == ("late", True)


async def test_it_runs_in_the_users_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "own shell"
    shell.write_text('#!/bin/sh\necho "mine: $2"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    assert (await open_commands(tmp_path).run("x", ignore_events, shared=False)).output == "mine: x"


async def test_a_model_with_the_tool_reads_them_as_calls_before_the_prompt(tmp_path: Path) -> None:
    named = {"sk-hunter2-hunter2": "SOME_API_KEY"}
    commands = OwnCommands(tmp_path, tmp_path / "spill", named, lambda: 0, offers_tool=lambda: True)
    await commands.run("echo sk-hunter2-hunter2; exit 3", ignore_events, shared=True)
    await commands.run("true", ignore_events, shared=True)
    messages = await commands.messages()
    roles = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert [message.role for message in messages] == roles * 2
    ask, call, result, done, *_ = messages
    assert (ask.is_hint, ask.content) == (True, "Run echo [SOME_API_KEY]; exit 3")
    assert call.tool_calls[0].arguments == {"command": "echo [SOME_API_KEY]; exit 3"}
    assert result.tool_call_id == call.tool_calls[0].id
    assert result.content == "[SOME_API_KEY]\n[exit code 3]"
    assert done.content == "Done."
    assert messages[6].content == "(no output)"
    assert await commands.messages() == []
    assert await commands.preface() == ""
