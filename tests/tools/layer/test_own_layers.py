"""Calls of a sub-agent work in a layer of their own, which is settled at its end."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import pytest

from shepherd.config.section import ApproveMode
from shepherd.errors import ToolError
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from tests.tools.workshop import Workshop, open_workshop
from tests.undo.project import view

Open = Callable[..., Workshop]


@pytest.fixture
def shop(layered_sandbox: Sandbox, tmp_path: Path) -> Open:
    def opened(mode: ApproveMode, answers: Iterable[Approval | Choice] = ()) -> Workshop:
        return open_workshop(tmp_path, mode=mode, answers=answers, sandbox=layered_sandbox)

    return opened


def helper(workshop: Workshop, number: int) -> ToolRunner:
    return cast("ToolRunner", workshop.runner.on_behalf_of(f"task {number}", in_layer=True))


async def run(runner: ToolRunner, command: str) -> str:
    return (await runner.run(ToolCall("1", "execute_command", {"command": command}))).content


async def write(runner: ToolRunner, path: str, content: str) -> str:
    call = ToolCall("2", "write_file", {"path": path, "content": content})
    return (await runner.run(call)).content


async def test_they_do_not_see_each_other_and_are_asked_about_once(shop: Open) -> None:
    workshop = shop(ApproveMode.ASK, [Choice.ONCE, Choice.ONCE])
    one, two = helper(workshop, 1), helper(workshop, 2)
    await write(one, "a", "1")
    await write(two, "b", "2")
    assert await run(one, "ls; echo 1 > c") == "a"
    assert await run(two, "ls") == "b"
    assert [*workshop.root.iterdir()] == []
    assert workshop.request_count == 0
    assert "kept" in await one.settle()
    assert "kept" in await two.settle()
    assert [request.caller for request in workshop.approver.requests] == ["task 1", "task 2"]
    assert sorted(path.name for path in workshop.root.iterdir()) == ["a", "b", "c"]


async def test_a_conflict_reaches_the_model_that_waits(shop: Open) -> None:
    workshop = shop(ApproveMode.AUTO)
    (workshop.root / "a").write_text("0")
    one, two = helper(workshop, 1), helper(workshop, 2)
    await run(one, "echo 1 > a; echo 1 > one")
    await run(two, "echo 2 > a; echo 2 > two")
    assert "kept" in await one.settle()
    with pytest.raises(ToolError, match="something else changed a "):
        await two.settle()
    assert workshop.request_count == 0
    assert (workshop.root / "a").read_text() == "1\n"
    assert not (workshop.root / "two").exists()
    assert not [*(workshop.root.parent / "layers").iterdir()]


async def test_what_is_refused_or_stopped_leaves_nothing(shop: Open) -> None:
    workshop = shop(ApproveMode.ASK, [Approval(Choice.DENY, feedback="use tabs")])
    before = view(workshop.root)
    one = helper(workshop, 1)
    await write(one, "a", "1")
    with pytest.raises(ToolError, match="use tabs"):
        await one.settle()
    await write(one, "a", "1")
    assert await one.settle(keep=False) == ""
    assert view(workshop.root) == before
    assert not [*(workshop.root.parent / "layers").iterdir()]
