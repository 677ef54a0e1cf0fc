"""`task` behind the server: sub-agents of the model that answers a request."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from shepherd.agents import TASK, DelegateBackends, RunTask, Tasks
from shepherd.agents.task import TaskArguments
from shepherd.backends.base import Backend, ModelInfo
from shepherd.errors import ConfigError, ToolError
from shepherd.messages import ToolSpec
from shepherd.server.agent.task_rounds import TaskRounds
from shepherd.session import Session
from shepherd.tools.base import Access, AnyTool, Tool, ToolContext, ToolResult
from shepherd.turn import TurnLimits

_current: ContextVar[Tasks | None] = ContextVar("tasks_of_turn", default=None)


class TurnTask(Tool[TaskArguments]):
    """`RunTask` for the turn of the request; a sub-agent has the model of the turn."""

    name = TASK
    description = "Have a sub-agent do a task and report. Several calls in one answer run at once."
    arguments = TaskArguments
    calls_models = True
    parallel = True

    def accesses(self, arguments: TaskArguments, context: ToolContext) -> list[Access]:
        return []

    def preview(self, arguments: TaskArguments, context: ToolContext) -> str:
        return arguments.prompt

    def deadline(self, arguments: TaskArguments, context: ToolContext) -> float | None:
        """None, because its calls and its requests have their own deadlines."""
        return None

    async def run(self, arguments: TaskArguments, context: ToolContext) -> ToolResult:
        tasks = _current.get()
        if tasks is None:
            raise ToolError(f"{TASK} works in a conversation only")
        tool = RunTask(tasks)
        return await tool.run(tool.arguments(prompt=arguments.prompt), context)


@contextmanager
def running(tasks: Tasks) -> Generator[None]:
    """Run a turn whose sub-agents are `tasks`."""
    token = _current.set(tasks)
    try:
        yield
    finally:
        _current.reset(token)


def tasks_of_turn(
    session: Session,
    rounds: TaskRounds,
    limits: TurnLimits,
    max_tasks: int,
) -> Tasks:
    """The sub-agents of the turn that answers `session`; `max_tasks` work at the same time.

    The limits of the answer hold for each of them. What only the client's answer needs, such as its
    stop texts, does not.
    """
    sampling = replace(session.sampling, stop=None, logprobs=None)
    return Tasks(
        session=lambda: replace(session, sampling=sampling, archive=None),
        limits=lambda: replace(limits, evicts=True),
        backend=rounds.open_backend,
        backends=DelegateBackends(_no_other_model),
        offer=_no_tools,
        address=_no_address,
        slots=asyncio.Semaphore(max_tasks),
    )


async def _no_other_model(name: str) -> Backend:
    raise ToolError(f"{TASK} has no model {name!r}")


def _no_tools(_tools: Iterable[AnyTool], _model: ModelInfo) -> list[ToolSpec]:
    return []


def _no_address(name: str) -> str:
    raise ConfigError(f"{TASK} has no model {name!r}")
