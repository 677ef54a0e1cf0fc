"""Runs tasks with a model, with and without each aid."""

import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bench.agency.added import added_tools
from bench.agency.tasks import Task
from shepherd.backends.base import Backend, Observer, Prefilled
from shepherd.config.section import ApproveMode
from shepherd.errors import ShepherdError
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import Role, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session, ToolChoice
from shepherd.tools.deferred import FindTools, SearchResults, listed_tools, search_tools
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy, own_output
from shepherd.tools.registry import ToolRegistry, builtin_tools
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from shepherd.turn import TurnLimits, run_turn

SYSTEM = (
    "You are Shepherd, an agent in the user's terminal. Use the tools to look before you answer; "
    "say plainly what you did."
)
MAX_TOKENS, MAX_ROUNDS = 96, 4
NARROWED = 3
"""Tools that are left for a forced call."""

ALL_LISTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Variant:
    """The aids of one run.

    `added` puts forty further tools beside the others, `search` defers them. `forced` requires a
    call as the first answer, and `narrowed` leaves the tools that fit the prompt's words for it.
    """

    name: str
    grammar: bool = True
    hints: bool = True
    added: bool = False
    search: bool = True
    forced: bool = False
    narrowed: bool = False


VARIANTS = (
    Variant("as it is"),
    Variant("without the call grammar", grammar=False),
    Variant("without hints", hints=False),
    Variant("without both", grammar=False, hints=False),
    Variant("40 tools more, searched", added=True),
    Variant("40 tools more, all in the prompt", added=True, search=False),
    Variant("forced first call", forced=True),
    Variant("forced first call, narrowed tools", forced=True, narrowed=True),
)


class Outcome(Struct):
    """One task; `read` counts the tokens of all its prompts, also those in the cache."""

    kind: str
    area: str
    success: bool
    rounds: int = 0
    read: int = 0
    written: int = 0
    seconds: float = 0.0


class Forcing(Observer):
    """Requires a call as the first answer to a prompt, with fewer tools if `narrowed`."""

    def __init__(self, *, narrowed: bool) -> None:
        self._narrowed = narrowed

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        last = session.messages[-1]
        if last.role is Role.USER and not last.is_hint:
            tools = self._tools(session.tools, last.content)
            session = replace(session, tools=tools, tool_choice=ToolChoice(single=True))
        async with super().prefilled(backend, session, callback, count) as prompts:
            yield prompts

    def _tools(self, tools: list[ToolSpec], prompt: str) -> list[ToolSpec]:
        best = search_tools(tools, prompt, NARROWED) if self._narrowed else tools
        return best or tools


@dataclass(frozen=True, slots=True)
class Agency:
    """Runs tasks; `backend` has the call grammar, `free` has not."""

    backend: Backend
    free: Backend
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict[str, list[Outcome]])

    async def run(self, variant: Variant, tasks: Sequence[Task]) -> list[Outcome]:
        """The outcome of each task."""
        outcomes = self.outcomes[variant.name] = []
        for task in tasks:
            with tempfile.TemporaryDirectory() as folder:
                outcomes.append(await self.attempt(variant, task, working_directory(folder)))
        return outcomes

    async def attempt(self, variant: Variant, task: Task, root: Path) -> Outcome:
        """One task in an empty directory."""
        task.prepare(root)
        registry = ToolRegistry(builtin_tools())
        for tool in [*added_tools(), FindTools()] if variant.added else []:
            registry.add(tool)
        max_tokens = 500 if variant.search else ALL_LISTED
        session = Session(
            SYSTEM,
            tools=listed_tools(registry, max_tokens),
            deferred=SearchResults(registry),
            sampling=Sampling(temperature=0.0),
        )
        policy = PermissionPolicy(root, ApproveMode.ALL, own=[own_output(root.parent / "spill")])
        context = ToolContext(root, root.parent / "spill", output_bytes=4096, timeout=20.0)
        runner = ToolRunner(registry, policy, DenyingApprover(), context)
        limits = TurnLimits(MAX_TOKENS, MAX_ROUNDS, max_hints=2 if variant.hints else 0)
        backend = self.backend if variant.grammar else self.free
        if variant.forced:
            limits = replace(limits, observer=Forcing(narrowed=variant.narrowed))
        outcome = Outcome(task.kind, task.area, success=False)
        started = time.perf_counter()
        try:
            ended = await run_turn(session, task.prompt, backend, runner, ignore_events, limits)
        except ShepherdError as error:
            print(f"{variant.name}: {task.prompt}: {error}")
            return outcome
        stats = ended.stats
        last = session.messages[-1]
        answer = last.content if last.role is Role.ASSISTANT else ""
        return replace(
            outcome,
            success=task.check(root, answer),
            rounds=len(stats),
            read=sum(one.prompt_tokens for one in stats),
            written=sum(one.completion_tokens for one in stats),
            seconds=time.perf_counter() - started,
        )


def working_directory(folder: str) -> Path:
    """A new empty directory in `folder`."""
    root = Path(folder).resolve() / "work"
    root.mkdir()
    return root
