"""What users of other agents have lost: nothing of it happens unasked, and all of it comes back."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.examples import PROFILE, some
from tests.tools.layer.incidents import INCIDENTS, fill, is_possible
from tests.tools.sandbox.boxes import LAYERED, need
from tests.undo.project import Project, Tree, open_project, view


@pytest.fixture(params=LAYERED, ids=lambda box: box.name)
async def project(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Project]:
    box: Box = request.param
    need(box)
    layers = (tmp_path / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    async with open_project(tmp_path, sandbox=sandbox) as project:
        project.workshop.runner.policy.mode = ApproveMode.ASK
        fill(project.root)
        yield project


def files(tree: Tree) -> Tree:
    """All but what git keeps of its own, which /undo leaves alone."""
    return {name: state for name, state in tree.items() if not name.startswith(".git/")}


def test_there_are_enough() -> None:
    assert sum(map(is_possible, INCIDENTS.values())) >= 36


@pytest.mark.long
async def test_nothing_is_lost(project: Project, request: pytest.FixtureRequest) -> None:
    problems: list[str] = []
    incidents = [*INCIDENTS.items()]
    if PROFILE != "long":  # what is done with a layer is the same in each box: they share the list
        names = [box.name for box in LAYERED]
        incidents = incidents[
            names.index(request.node.callspec.params["project"].name) :: len(names)
        ]
        incidents = some(incidents, request.node.name, 12)
    for name, line in incidents:
        if is_possible(line):
            problems += [f"{name}: {what}" async for what in play(project, line)]
    assert problems == []


async def play(project: Project, line: str) -> AsyncGenerator[str]:
    """Refuse what the line does, then allow it and undo it; what went wrong, in words."""
    approver, before = project.workshop.approver, view(project.root)
    approver.requests.clear()
    await project.call("execute_command", command=line)
    if not approver.requests:
        yield "nobody was asked"
    if view(project.root) != before:
        yield "it happened in spite of a no"

    approver.script(*[Choice.ONCE] * 3)
    text = await project.call("execute_command", command=line)
    approver.script()
    if files(view(project.root)) == files(before):
        yield f"nothing was lost: {text}"
        return
    await project.keeper.undo()
    lost = files(before).items() ^ files(view(project.root)).items()
    if lost:
        yield f"not all of it came back: {lost}"
