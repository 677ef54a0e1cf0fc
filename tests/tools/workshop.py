"""A working directory with a runner over it, and small questions to ask of processes."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.config.section import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.tools.permissions.policy import PermissionPolicy, own_output
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext, ToolResult
from tests.approvers import ScriptedApprover
from tests.patience import PATIENCE


@dataclass
class Workshop:
    """Runs calls in `root`; `outside` is a directory beside it."""

    root: Path
    outside: Path
    runner: ToolRunner
    approver: ScriptedApprover

    async def result(self, name: str, /, **arguments: Any) -> ToolResult:
        """The result of a call."""
        return await self.runner.run(ToolCall("call_1", name, arguments))

    async def call(self, name: str, /, **arguments: Any) -> str:
        """The text of a call's result."""
        return (await self.result(name, **arguments)).content

    @property
    def request_count(self) -> int:
        """How often approval was asked for."""
        return len(self.approver.requests)


def open_workshop(
    base: Path,
    *,
    mode: ApproveMode = ApproveMode.ALL,
    rules: Iterable[str] = (),
    answers: Iterable[Approval | Choice] = (),
    registry: ToolRegistry | None = None,
    **context: Any,
) -> Workshop:
    """A workshop below `base`; `rules` are the user's."""
    root, outside = base / "project", base / "outside"
    root.mkdir(exist_ok=True)
    outside.mkdir(exist_ok=True)
    user = [parse_rule(rule) for rule in rules]
    policy = PermissionPolicy(root, mode, user=user, own=[own_output(base / "spill")])
    approver = ScriptedApprover(answers)
    settings = ToolContext(root, base / "spill", **context)
    runner = ToolRunner(registry or default_registry(), policy, approver, settings)
    return Workshop(root.resolve(), outside.resolve(), runner, approver)


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until the condition holds; fails when it takes far too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process lives; one that is dead but not yet buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
