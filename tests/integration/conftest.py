"""Whole conversations: the built-in model, real tools, a real session file."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.section import ApproveMode
from shepherd.events import CallbackEvent, Event
from shepherd.messages import Message, Role
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.flat_events import Flat, flat

Loader = Callable[[int], "LlamaCppBackend"]
SYSTEM = "You are Shepherd, an agent in the user's terminal."


@dataclass
class Recorder:
    """Keeps events; says False at event number `cancel_at`."""

    cancel_at: int | None = None
    events: list[Flat] = field(default_factory=list[Flat])

    def __call__(self, event: Event) -> bool:
        self.events.append(flat(event))
        return len(self.events) - 1 != self.cancel_at

    def of(self, kind: CallbackEvent) -> list[str]:
        return [content for e, content, _, _ in self.events if e is kind]


def assert_valid(messages: list[Message]) -> None:
    """Every call has exactly one result, right behind it."""
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [c.id for c in message.tool_calls]
    assert waiting == []


@pytest.fixture
async def backend(request: pytest.FixtureRequest) -> AsyncGenerator[LlamaCppBackend]:
    """Pup, greedy, with the context size that the test's parameter names (4,096 without)."""
    size: int = getattr(request, "param", 4096)
    settings = LlamaCppSection(context_size=size, threads=1)
    backend = await LlamaCppBackend.load(builtin_model(), settings, Sampling(temperature=0.0))
    yield backend
    await backend.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with two files in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("buy bread\ncall the shepherd\n")
    (folder / "todo.md").write_text("- count the sheep\n")
    return folder


@pytest.fixture
def runner(folder: Path, tmp_path: Path) -> ToolRunner:
    """All default tools, unasked, in `folder`."""
    context = ToolContext(cwd=folder, spill_dir=tmp_path / "spill")
    policy = PermissionPolicy(folder, ApproveMode.ALL)
    return ToolRunner(default_registry(), policy, DenyingApprover(), context)


@pytest.fixture
def session(runner: ToolRunner) -> Session:
    return Session(SYSTEM, tools=runner.registry.specs())
