"""`task` behind the server: sub-agents of the model that answers a request, or of another one."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial

from shepherd.agents import TASK, RunTask, Tasks
from shepherd.backends.base import ModelInfo
from shepherd.errors import ToolError
from shepherd.messages import ToolSpec
from shepherd.server.agent.task_rounds import TaskRounds
from shepherd.session import Session
from shepherd.tools.base import AnyTool
from shepherd.turn import TurnLimits

_current: ContextVar[Tasks | None] = ContextVar("tasks_of_turn", default=None)


def turn_task(
    providers: Sequence[str] = (), address: Callable[[str], str] = lambda _name: ""
) -> RunTask:
    """`task` for the turn of a request; `providers` and `address` are as in `RunTask`."""
    return RunTask(_tasks, address, providers)


def _tasks() -> Tasks:
    tasks = _current.get()
    if tasks is None:
        raise ToolError(f"{TASK} works in a conversation only")
    return tasks


@contextmanager
def running(tasks: Tasks) -> Generator[None]:
    """Run a turn whose sub-agents are `tasks`."""
    token = _current.set(tasks)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of each sub-agent, and how many work at the same time."""

    turn: TurnLimits
    max_tasks: int


def tasks_of_turn(
    session: Session,
    rounds: TaskRounds,
    limits: TaskLimits,
    offer: Callable[[ModelInfo], Sequence[ToolSpec]],
) -> Tasks:
    """The sub-agents of the turn that answers `session`; `offer` selects the tools for a model.

    The limits of the answer hold for each of them. What only the client's answer needs, such as its
    stop texts, does not.
    """
    sampling = replace(session.sampling, stop=None, logprobs=None)
    return Tasks(
        session=lambda: replace(session, sampling=sampling, archive=None),
        limits=lambda: replace(limits.turn, evicts=True),
        backend=rounds.open_backend,
        backends=rounds,
        offer=partial(_offered, offer),
        slots=asyncio.Semaphore(limits.max_tasks),
    )


def _offered(
    offer: Callable[[ModelInfo], Sequence[ToolSpec]], tools: Iterable[AnyTool], model: ModelInfo
) -> list[ToolSpec]:
    """The tools for a model, of those that a sub-agent may use."""
    names = {tool.name for tool in tools}
    return [spec for spec in offer(model) if spec.name in names]
