"""A server whose model is a script and whose agent works in a directory of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shepherd.backends.base import Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode, ShowToolCalls
from shepherd.events import EventCallback
from shepherd.messages import Message, ToolSpec
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.rounds import HiddenRounds
from shepherd.session import Session
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Rule
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from shepherd.turn import TurnLimits
from tests.server.harness import RunningServer

SYSTEM = "You work in a directory."
READ = 'call: read_file {"path": "notes.txt"}'
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


@dataclass(frozen=True)
class Prompt:
    """A prompt that the model got."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]

    @property
    def roles(self) -> str:
        """The first letters of the roles: `uata` for a user's prompt with one round of tools."""
        return "".join(message.role.value[0] for message in self.messages)


class RecordingBackend(ScriptedBackend):
    """A script that keeps the prompts it got."""

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.prompts: list[Prompt] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        prefilled = await super().prefill_session(session, callback)
        self.prompts.append(Prompt(session.system_message, [*session.messages], [*session.tools]))
        return prefilled


Recorded: TypeAlias = RunningServer[RecordingBackend]


def runner(
    directory: Path, rules: Sequence[Rule] = (), mode: ApproveMode = ApproveMode.ASK
) -> ToolRunner:
    """Shepherd's tools in a directory, where nobody approves anything."""
    context = ToolContext(cwd=directory, spill_dir=directory / "spill")
    policy = PermissionPolicy(directory, mode, user=list(rules))
    return ToolRunner(default_registry(), policy, DenyingApprover(), context)


def agent_of(
    tools: ToolRunner,
    show: ShowToolCalls = ShowToolCalls.OFF,
    max_rounds: int = 25,
    rounds: HiddenRounds | None = None,
) -> Agent:
    return Agent(
        tools=tools,
        offer=lambda _: tools.registry.specs(),
        system_message=SYSTEM,
        limits=TurnLimits(max_rounds=max_rounds),
        show=show,
        rounds=rounds or HiddenRounds(),
    )


def serve(script: str, agent: Agent, keys: KeyStore | None = None) -> Recorded:
    return RunningServer(RecordingBackend(script), keys=keys, agent=agent)


def directory(path: Path) -> Path:
    """A directory with a file to read."""
    work = path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("remember the milk\n")
    return work
