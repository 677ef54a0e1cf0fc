"""`task`: a sub-agent does a part of the work in a session of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import count
from math import inf
from typing import Annotated

from msgspec import Struct, field, structs
from pydantic import Field

from shepherd import errors, events, messages
from shepherd.agents.ask import OtherBackends, model_access
from shepherd.agents.progress import LastRoundExecutor, Progress, answer_of, shorten
from shepherd.backends.base import Backend, Lease, ModelInfo
from shepherd.session import Session
from shepherd.tools import access, tool
from shepherd.tools.text import cap_text
from shepherd.turn import TurnLimits, run_turn

TASK = "task"
MAX_ROUNDS = 20
"""Maximum generations of one sub-agent, including its report."""

MAX_LABEL = 40
"""Maximum characters of the prompt in the name of a sub-agent."""

PROMPT = (
    "[You are a sub-agent. Do this task alone, then report: only your last message is read.]\n\n"
    "{prompt}"
)


class TaskArguments(tool.Arguments):
    """The task, and the model that does it."""

    prompt: Annotated[
        str,
        Field(min_length=1, description="With all that it must know: it does not see this chat."),
    ]
    model: Annotated[
        str, Field(description="Another model: PROVIDER or PROVIDER/MODEL; else the same.")
    ] = ""


class Tasks(Struct, frozen=True):
    """The parts that the sub-agents of one conversation share.

    `session` returns the conversation, `limits` the guards of its turns, and `backend` its model.
    `backends` are the other models, and `offer` selects the tools for one of them. `slots` limits
    the number of sub-agents that work at the same time. `client_tools` are names of tools in the
    session that others run: a sub-agent can't use them.
    """

    session: Callable[[], Session]
    limits: Callable[[], TurnLimits]
    backend: Callable[[], Awaitable[Backend]]
    backends: OtherBackends
    offer: Callable[[Iterable[tool.AnyTool], ModelInfo], list[messages.ToolSpec]]
    slots: asyncio.Semaphore
    client_tools: Collection[str] = ()
    numbers: "count[int]" = field(default_factory=lambda: count(1))


class RunTask(tool.Tool[TaskArguments]):
    """Runs a prompt in a new session; calls of one answer run at the same time.

    The session of the same model begins like the conversation, with the same system message and the
    same tools. The model therefore does not read them again. `providers` are those whose models may
    be named instead. `address` returns the URL of one, "" if the task stays on this machine or
    network; it raises ConfigError. `tasks` returns what the current turn's sub-agents share, and
    raises ToolError outside of one.
    """

    name = TASK
    traits = tool.Traits("think", connects_in_plan=True)  # the sub-agent has the same rules
    arguments = TaskArguments
    calls_models = True
    parallel = True

    def __init__(
        self,
        tasks: Callable[[], Tasks],
        address: Callable[[str], str],
        providers: Sequence[str] = (),
    ) -> None:
        self._tasks = tasks
        self._address = address
        self._providers = providers
        self.description = (
            "Have a sub-agent do a task and report. Several calls in one answer run at once."
        )
        if providers:
            self.description += f" Providers: {', '.join(providers)}."

    def spec(self) -> messages.ToolSpec:
        """The tool as the model sees it; without other providers it has no `model`."""
        spec = super().spec()
        if not self._providers:
            spec.parameters["properties"].pop("model")
        return spec

    def accesses(self, arguments: TaskArguments, context: tool.ToolContext) -> list[access.Access]:
        """The address of another model, which sees what the task says; raises ToolError."""
        if not arguments.model:
            return []
        if arguments.model.partition("/")[0] not in self._providers:
            known = ", ".join(self._providers) or "none; leave `model` out"
            raise errors.ToolError(f"there is no provider {arguments.model!r} for tasks: {known}")
        return model_access(self._address, arguments.model)

    def preview(self, arguments: TaskArguments, context: tool.ToolContext) -> str:
        return arguments.prompt

    def deadline(self, arguments: TaskArguments, context: tool.ToolContext) -> float | None:
        """None, because its calls and its requests have their own deadlines."""
        return None

    async def run(self, arguments: TaskArguments, context: tool.ToolContext) -> tool.ToolResult:
        if context.runner is None:
            raise errors.ToolError(f"{TASK} works in a conversation only")
        tasks = self._tasks()
        caller = f"{TASK} {next(tasks.numbers)}"
        label = f"{caller} ({shorten(arguments.prompt, MAX_LABEL)})"
        progress = Progress(label, context.on_event, events.Topic.TASK, arguments.model or TASK)
        progress.line("waiting" if tasks.slots.locked() else "starting")
        async with tasks.slots:
            runner = context.runner.on_behalf_of(caller, in_layer=True)
            try:
                result = await _report(tasks, arguments, runner, progress)
            finally:  # what a failed or stopped task has changed
                await runner.settle(keep=False)
        text = cap_text(result.content, context.output_bytes, context.spill_dir)
        return structs.replace(result, content=text)


async def _report(
    tasks: Tasks, arguments: TaskArguments, runner: tool.CallRunner, progress: Progress
) -> tool.ToolResult:
    """Let a model do the task in a session of its own."""
    session = _session(tasks.session(), progress.label)
    try:
        if arguments.model:
            backend = await tasks.backends.get(arguments.model)
            session.tools = tasks.offer(runner.tools, backend.info)
        else:
            backend = await tasks.backend()
        limits = tasks.limits()
        limits = structs.replace(limits, max_rounds=min(MAX_ROUNDS, limits.max_rounds))
        tools = _OwnTools(runner, progress, limits.max_rounds, tasks.client_tools)
        prompt = PROMPT.format(prompt=arguments.prompt)
        try:
            outcome = await run_turn(session, prompt, backend, tools, progress, limits)
        finally:  # nothing asks in this session again
            backend.note_lease(Lease(session.id, inf))
    except errors.ShepherdError as error:
        raise errors.ToolError(f"{progress.label} failed: {error}") from error
    answer = answer_of(progress.label, session, outcome.finish_reason, progress.error)
    try:
        note = await runner.settle()
    except errors.ToolError as error:
        note = str(error)
    return structs.replace(answer, content=f"{answer.content}\n[{note}]") if note else answer


def _session(parent: Session, label: str) -> Session:
    """A new session that begins with the tokens of the conversation, so they stay in the cache."""
    caller = label.partition(" (")[0]  # `task 1` of `task 1 (the prompt)`
    return Session(
        parent.system_message,
        tools=[*parent.tools],
        deferred=parent.deferred,
        sampling=parent.sampling,
        thinking=parent.thinking,
        template_values=parent.template_values,
        id=f"{parent.id}-{caller.replace(' ', '-')}",
        began=parent.began,
        archive=parent.archive,
    )


class _OwnTools(LastRoundExecutor, frozen=True):
    """Runs the calls of a sub-agent, which sees tools that it may not use."""

    client_tools: Collection[str] = ()

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> tool.ToolResult:
        """The call's result, or an error for a tool that only the conversation may use."""
        is_known = any(offered.name == call.name for offered in self.runner.tools)
        if not is_known or call.name in self.client_tools:
            return tool.ToolResult(f"Error: a sub-agent has no tool {call.name}", ok=False)
        return await LastRoundExecutor.run(self, call, output_bytes, on_event)
