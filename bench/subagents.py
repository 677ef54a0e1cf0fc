"""Four sub-agents at once against one after the other, with the built-in model in this process."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.table import markdown, ratio
from shepherd.agents import DelegateBackends, RunTask, Tasks
from shepherd.backends.base import Backend
from shepherd.backends.registry import open_backend
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.config.choices import ApproveMode
from shepherd.config.settings import Config
from shepherd.conversation.build import CONVERSATION
from shepherd.events import CallbackEvent
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.tools.base import ToolContext
from shepherd.tools.builtin import default_registry
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.runner import ToolRunner
from shepherd.turn import TurnLimits, run_turn

RUNS = 5
AT_ONCE = 4
ANSWER_TOKENS = 240
PROMPTS = ("hello", "tell me a joke", "who are you?", "what is the capital of France?")


@dataclass(slots=True)
class Measured:
    """Seconds and tokens of four tasks."""

    wall: float = 0.0
    cpu: float = 0.0
    tokens: int = 0
    prompt: int = 0
    cached: int = 0
    results: list[str] = field(default_factory=list[str])

    def take(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Add the usage of a sub-agent."""
        if event is CallbackEvent.STATS and name:
            stats = json.loads(content)
            self.tokens += stats["completion_tokens"]
            self.prompt += stats["prompt_tokens"]
            self.cached += stats["cached_tokens"]
        return True


def main() -> None:
    """Print the table of minima."""
    asyncio.run(_main())


async def _main() -> None:
    config = Config()
    backend = await open_backend(config, parallel=CONVERSATION)
    try:
        await _measure(backend, AT_ONCE)  # the first run also fills the caches
        pairs = [
            (await _measure(backend, 1), await _measure(backend, AT_ONCE)) for _ in range(RUNS)
        ]
    finally:
        await backend.aclose()
    alone, together = (min(side, key=lambda run: run.wall) for side in zip(*pairs, strict=True))
    cpu = [min(run.cpu for run in side) for side in zip(*pairs, strict=True)]
    rows = [
        _row("one after the other", alone, cpu[0]),
        _row("four at once", together, cpu[1]),
    ]
    print(f"Four tasks of {ANSWER_TOKENS} tokens; minima of {RUNS} runs that take turns.\n")
    print(markdown(("", "wall", "CPU", "tokens/s", "prompt", "cached"), rows))
    print(
        f"\nAt once takes {ratio(together.wall, alone.wall)} the time, {ratio(*cpu[::-1])} the CPU."
    )


def _row(name: str, run: Measured, cpu: float) -> tuple[str, ...]:
    return (
        name,
        f"{run.wall:.2f} s",
        f"{cpu:.2f} s",
        f"{run.tokens / run.wall:.0f}",
        str(run.prompt),
        str(run.cached),
    )


async def _measure(backend: Backend, at_once: int) -> Measured:
    registry = default_registry()
    session = Session(
        "You are Shepherd, an agent in the user's terminal.",
        # greedy answers of Pup repeat themselves, and speculation then reads ahead of a single one
        sampling=Sampling(temperature=1, seed=1, ignore_eos=True),
    )

    async def own() -> Backend:
        return backend

    tasks = Tasks(
        session=lambda: session,
        limits=lambda: TurnLimits(max_tokens=ANSWER_TOKENS, max_rounds=1),
        backend=own,
        backends=DelegateBackends(lambda _: own()),
        offer=lambda tools, _: [tool.spec() for tool in tools],
        slots=asyncio.Semaphore(at_once),
    )
    session.tools = registry.specs()
    task = RunTask(lambda: tasks, lambda _name: "")
    registry.add(task)
    session.tools.append(task.spec())
    policy = PermissionPolicy(Path.cwd(), ApproveMode.NONE)
    context = ToolContext(Path.cwd(), Path("/tmp/unused"))
    tools = ToolRunner(registry, policy, DenyingApprover(), context)
    calls = [f"call: task {json.dumps({'prompt': prompt})}" for prompt in PROMPTS]
    leader = ScriptedBackend(parse_script("\n".join([*calls, "---", "text: done"])))
    measured = Measured()
    wall, cpu = time.perf_counter(), time.process_time()
    await run_turn(session, "go", leader, tools, measured.take)
    measured.wall, measured.cpu = time.perf_counter() - wall, time.process_time() - cpu
    measured.results = [message.content for message in session.messages[2:-1]]
    return measured
