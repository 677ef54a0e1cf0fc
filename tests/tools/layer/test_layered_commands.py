"""Commands in a layer: they change nothing until they end, and all that they did can be undone."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.sandbox.view.private import remove_tree
from shepherd.undo.store import UndoLimits
from tests.tools.workshop import open_workshop, until
from tests.undo.project import Project, open_project, view


@pytest.fixture
async def project(layered_sandbox: Sandbox, tmp_path: Path) -> AsyncGenerator[Project]:
    async with open_project(tmp_path, sandbox=layered_sandbox) as project:
        yield project
    remove_tree(tmp_path)  # a command may have made more than pytest could remove


async def test_what_git_ignores_comes_back_too(project: Project) -> None:
    (project.root / ".git").mkdir()
    (project.root / ".gitignore").write_text("data\n")
    (project.root / "data" / "deep").mkdir(parents=True)
    (project.root / "data" / "deep" / "base.db").write_bytes(bytes(range(256)) * 4000)
    (project.root / "data" / "link").symlink_to("deep/base.db")
    (project.root / "data" / "run").write_text("#!/bin/sh\n")
    (project.root / "data" / "run").chmod(0o750)
    before = view(project.root)

    await project.call("execute_command", command="rm -rf data; echo 1 > made")
    assert not (project.root / "data").exists()
    await project.keeper.undo()

    assert view(project.root) == before


async def test_nothing_changes_before_the_end(project: Project) -> None:
    gate = project.root / "gate"
    gate.mkdir()
    call = ToolCall("1", "execute_command", {"command": "echo 1 > made; sleep 0.3; cat made"})
    task = asyncio.ensure_future(project.workshop.runner.run(call))
    seen = False
    while not task.done():
        seen = seen or (project.root / "made").exists()
        await asyncio.sleep(0.005)

    assert (await task).content.strip() == "1"
    assert (project.root / "made").read_text() == "1\n"


async def test_a_cancelled_command_leaves_nothing(project: Project, tmp_path: Path) -> None:
    call = ToolCall("1", "execute_command", {"command": "echo 1 > made; sleep 60"})
    task = asyncio.ensure_future(project.workshop.runner.run(call))
    await until(lambda: any((tmp_path / "layers").glob("layer-*/upper/made")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not (project.root / "made").exists()
    assert not [*(tmp_path / "layers").iterdir()]


async def test_what_something_else_changed_is_not_overwritten(
    project: Project, tmp_path: Path
) -> None:
    (project.root / "note").write_text("old\n")
    call = ToolCall("1", "execute_command", {"command": "echo model >> note; : > other; sleep 1"})
    task = asyncio.ensure_future(project.workshop.runner.run(call))
    await until(lambda: any((tmp_path / "layers").glob("layer-*/upper/other")))
    (project.root / "note").write_text("the user's\n")

    assert "something else changed note" in (await task).content
    assert (project.root / "note").read_text() == "the user's\n"
    assert not (project.root / "other").exists()


async def test_a_protected_file_that_the_user_makes_meanwhile_stays(
    project: Project, tmp_path: Path
) -> None:
    call = ToolCall("1", "execute_command", {"command": ": > other; sleep 0.3"})
    task = asyncio.ensure_future(project.workshop.runner.run(call))
    await until(lambda: any((tmp_path / "layers").glob("layer-*/upper/other")))
    (project.root / ".shepherd.toml").write_text("# the user's\n")
    await task

    assert (project.root / ".shepherd.toml").read_text() == "# the user's\n"
    assert sorted(path.name for path in project.root.iterdir()) == [".shepherd.toml", "other"]


STARTED_UNASKED = ("sub/.git/hooks/pre-commit", "pkg/.vscode/tasks.json")


@pytest.mark.parametrize("name", STARTED_UNASKED)
@pytest.mark.parametrize("answer", [Choice.DENY, Choice.ONCE])
async def test_new_start_up_files_need_their_own_approval(
    layered_sandbox: Sandbox, tmp_path: Path, name: str, answer: Choice
) -> None:
    shop = open_workshop(tmp_path, mode=ApproveMode.AUTO, answers=[answer], sandbox=layered_sandbox)
    # in a script, so that no rule reads the names in the line
    script = f"mkdir -p $(dirname {name}); echo x > {name}; echo y > plain\n"
    (shop.root / "run.sh").write_text(script)

    text = await shop.call("execute_command", command="sh run.sh")

    assert shop.request_count == 1
    assert (shop.root / name).exists() == (answer is Choice.ONCE)
    assert ("not kept" in text) == (answer is Choice.DENY)
    assert (shop.root / "plain").read_text() == "y\n"


async def test_a_file_that_rules_deny_is_not_kept(project: Project) -> None:
    (project.root / "run.sh").write_text("echo x > .envrc; echo y > plain\n")

    text = await project.call("execute_command", command="sh run.sh")

    assert "not kept, as they need approval: .envrc" in text
    assert not (project.root / ".envrc").exists()
    assert (project.root / "plain").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("execute_command", {"command": "rm -r data"}),
        ("write_file", {"path": "data/large", "content": "x"}),
        ("delete_file", {"path": "data/large"}),
    ],
)
async def test_a_question_tells_what_undo_could_not_bring_back(
    layered_sandbox: Sandbox, tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    limits = UndoLimits(file_bytes=1000)
    async with open_project(tmp_path, limits=limits, sandbox=layered_sandbox) as project:
        (project.root / "data").mkdir()
        (project.root / "data" / "large").write_bytes(bytes(2000))
        project.workshop.runner.policy.mode = ApproveMode.ASK
        for answer in (Choice.DENY, Choice.ONCE):
            project.workshop.approver.script(answer)
            await project.call(tool, **arguments)

        requests = project.workshop.approver.requests
        loss = "/undo could not bring back data/large: it is larger than 1,000 bytes"
        assert [loss in request.cause for request in requests] == [True, True]
        assert project.warnings == []  # the user knows it


async def test_a_folder_that_only_a_rename_moves_is_moved_without_a_layer(project: Project) -> None:
    (project.root / "old").mkdir()
    (project.root / "old" / "note").write_text("1\n")
    before = view(project.root)
    line = "echo first >> log; python3 -c \"import os; os.rename('old', 'new')\""

    text = await project.call("execute_command", command=line)

    assert "run again without a layer" in text
    assert (project.root / "new" / "note").read_text() == "1\n"
    assert (project.root / "log").read_text() == "first\n"  # what the first run did was dropped
    await project.keeper.undo()
    assert view(project.root) == before


@pytest.mark.parametrize("error", ["Invalid cross-device link", "/etc/x: Read-only file system"])
async def test_what_runs_again_without_a_layer_can_be_undone(project: Project, error: str) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q"], cwd=project.root, check=True)
    (project.root / ".gitignore").write_text("data\n")
    (project.root / "data").mkdir()
    (project.root / "data" / "base.db").write_bytes(bytes(2000))
    before = view(project.root)
    line = f"rm -rf data; grep -q overlay /proc/self/mountinfo && {{ echo {error} >&2; exit 1; }}"

    text = await project.call("execute_command", command=line)
    assert not (project.root / "data").exists()
    assert "again" in text
    await project.keeper.undo()

    assert view(project.root) == before


async def test_what_belongs_to_another_group_is_changed_without_a_layer(project: Project) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files to other groups")
    (project.root / "shared").mkdir()
    os.chown(project.root / "shared", -1, 1)

    text = await project.call("execute_command", command="echo 1 > shared/new")

    assert "run again without a layer" in text
    assert (project.root / "shared" / "new").read_text() == "1\n"


async def test_a_folder_moves_with_mv(project: Project) -> None:
    (project.root / "old").mkdir()
    (project.root / "old" / "note").write_text("1\n")

    text = await project.call("execute_command", command="mv old new && echo moved")

    assert text == "moved"
    assert (project.root / "new" / "note").read_text() == "1\n"
    assert not (project.root / "old").exists()


@pytest.mark.parametrize(("name", "count"), [("d", 1100), ("d" * 200, 60)])
async def test_directories_that_are_too_deep_are_not_kept(
    project: Project, tmp_path: Path, name: str, count: int
) -> None:
    code = f"import os\nfor _ in range({count}):\n os.mkdir('{name}'); os.chdir('{name}')\n"
    (project.root / "deep.py").write_text(code)

    text = await project.call("execute_command", command="python3 deep.py; echo made")

    assert text.startswith("made\n[its changes were not kept: ")
    assert not (project.root / name).exists()
    assert not [*(tmp_path / "layers").glob("layer-*")]
