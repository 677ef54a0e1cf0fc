"""Sub-agents: their sessions, their models, their tools, their limits, their end."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shepherd.agents import DelegateBackends, RunTask, Tasks
from shepherd.agents.progress import LAST_ROUND
from shepherd.agents.task import MAX_ROUNDS, PROMPT
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode
from shepherd.config.settings import Config
from shepherd.conversation.toolbox import offered_tools
from shepherd.errors import UnreachableError
from shepherd.events import CallbackEvent, Event, EventCallback, FinishReason, Topic
from shepherd.messages import Message, Role
from shepherd.models import BUILTIN_TOOLS
from shepherd.session import Session
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.registry import default_registry
from shepherd.turn import TurnLimits, run_turn
from tests.flat_events import flat
from tests.patience import PATIENCE
from tests.tools.workshop import Workshop, open_workshop

LOOK = 'call: read_file {"path": "notes.txt"}\n---\ntext: Milk.'
WRITE = 'call: write_file {"path": "new.txt", "content": "x"}\n---\ntext: Done.'


class Watched(ScriptedBackend):
    """Keeps the sessions of its requests, and how many ran at the same time.

    The first requests wait until `meet` of them run.
    """

    meet = 1

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.sessions: list[Session] = []
        self.together = 0

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        if not any(session is known for known in self.sessions):
            self.sessions.append(session)
        return await super().prefill_session(session, callback)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self.together = max(self.together, self.active)
        async with asyncio.timeout(PATIENCE):
            while self.together < self.meet:
                await asyncio.sleep(0.001)
        return await super().generate_from_prefilled(prefilled, callback, max_tokens)


@dataclass
class Team:
    """A conversation whose sub-agents are played by `model`, or by `other` at `fast`."""

    workshop: Workshop
    model: Backend
    conversation: Session
    other: Watched | Exception
    tasks: Tasks | None = None
    events: list[tuple[CallbackEvent, str, str, str]] = field(
        default_factory=list[tuple[CallbackEvent, str, str, str]]
    )
    opened: list[str] = field(default_factory=list[str])

    def hear(self, event: Event) -> bool:
        self.events.append(flat(event))
        return True

    def lines(self) -> list[str]:
        return [text for text, _ in self.tagged()]

    def tagged(self) -> list[tuple[str, str]]:
        """The lines with their ids."""
        return [
            (text, call)
            for kind, text, topic, call in self.events
            if kind is CallbackEvent.SYSTEM and topic == Topic.TASK
        ]

    @property
    def watched(self) -> Watched:
        assert isinstance(self.model, Watched)
        return self.model

    async def own(self) -> Backend:
        return self.model

    async def open(self, selector: str) -> Backend:
        self.opened.append(selector)
        if isinstance(self.other, Exception):
            raise self.other
        return self.other

    async def delegate(self, *prompts: str, model: str = "") -> list[str]:
        """The results of one answer with a task for each prompt."""
        named = f', "model": "{model}"' if model else ""
        calls = [f'call: task {{"prompt": "{prompt}"{named}}}' for prompt in prompts]
        leader = ScriptedBackend(parse_script("\n".join([*calls, "---", "text: ok"])))
        tools = self.workshop.runner
        outcome = await run_turn(self.conversation, "go", leader, tools, self.hear)
        assert outcome.finish_reason is FinishReason.STOP
        return [m.content for m in self.conversation.messages if m.role is Role.TOOL]


def gather_team(
    base: Path,
    script: str,
    *,
    at_once: int = 4,
    other: str | Exception = "text: from afar",
    mode: ApproveMode = ApproveMode.ASK,
    answers: Iterable[Choice] = (),
    limits: TurnLimits | None = None,
    address: str = "",
) -> Team:
    registry = default_registry()
    workshop = open_workshop(base, mode=mode, answers=answers, registry=registry)
    conversation = Session("You are the leader.", id="s1")
    played = Watched(other) if isinstance(other, str) else other
    team = Team(workshop, Watched(script), conversation, played)
    tasks = Tasks(
        session=lambda: conversation,
        limits=lambda: limits or TurnLimits(),
        backend=team.own,
        backends=DelegateBackends(team.open),
        offer=lambda tools, _model: [tool.spec() for tool in tools],
        slots=asyncio.Semaphore(at_once),
    )
    team.tasks = tasks
    registry.add(RunTask(lambda: tasks, lambda _provider: address, ["fast"]))
    conversation.tools = registry.specs()
    return team


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("buy milk\n")
    return tmp_path


async def test_several_work_at_once_in_sessions_that_begin_like_the_conversation(
    base: Path,
) -> None:
    team = gather_team(base, "text: report")
    team.watched.meet = 3
    assert await team.delegate("a", "b", "c") == ["report"] * 3
    assert team.watched.together == 3
    sessions = sorted(team.watched.sessions, key=lambda session: session.messages[0].content)
    for session, prompt in zip(sessions, "abc", strict=True):
        assert session.messages[0] == Message.user(PROMPT.format(prompt=prompt))
        assert session.system_message == team.conversation.system_message
        assert session.tools == team.conversation.tools
        assert session.journal is None
    assert [m.role for m in team.conversation.messages] == [
        Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.TOOL, Role.ASSISTANT
    ]  # fmt: skip


async def test_no_more_than_the_limit_work_at_once(base: Path) -> None:
    team = gather_team(base, "text: report", at_once=2)
    team.watched.meet = 2
    assert await team.delegate("a", "b", "c", "d", "e") == ["report"] * 5
    assert team.watched.together == 2


async def test_each_line_names_its_task_and_its_call(base: Path) -> None:
    team = gather_team(base, LOOK)
    assert await team.delegate("look into notes.txt") == ["Milk."]
    name = "task 1 (look into notes.txt)"
    call = team.conversation.messages[1].tool_calls[0].id
    assert team.tagged() == [
        (f"{name}: starting", call),
        (f'{name}: read_file {{"path": "notes.txt"}}', call),
        (f"{name}: writing", call),
    ]
    stats = [name for event, _, name, _ in team.events if event is CallbackEvent.STATS]
    assert stats == ["", "task", "task", ""]


async def test_a_long_report_is_cut_and_kept_whole_in_a_file(base: Path) -> None:
    team = gather_team(base, f"text: {'word ' * 20_000}")
    results = await team.delegate("a", "b")
    for result in results:
        assert 1_000 < len(result) < 35_000
        assert "bytes cut here; all of it is in" in result


async def test_an_approval_names_the_sub_agent(base: Path) -> None:
    team = gather_team(base, WRITE, answers=[Choice.ONCE])
    assert await team.delegate("write") == ["Done."]
    [request] = team.workshop.approver.requests
    assert request.caller == "task 1"
    assert (team.workshop.root / "new.txt").read_text() == "x"


async def test_a_sub_agent_starts_no_other(base: Path) -> None:
    team = gather_team(base, 'call: task {"prompt": "deeper"}\n---\ntext: Then not.')
    assert await team.delegate("nest") == ["Then not."]
    [session] = team.watched.sessions
    assert session.messages[2].content == "Error: a sub-agent has no tool task"


async def test_another_model_does_it_after_a_question(base: Path) -> None:
    team = gather_team(base, "", answers=[Choice.ONCE], address="https://api.example.com")
    assert await team.delegate("far", model="fast/big") == ["from afar"]
    assert team.opened == ["fast/big"]
    [request] = team.workshop.approver.requests
    assert [access.target for access in request.accesses] == ["https://api.example.com"]
    assert isinstance(team.other, Watched)
    assert "task" not in [tool.name for tool in team.other.sessions[0].tools]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("gpt-9", "Error: there is no provider 'gpt-9' for tasks: fast"),
        ("fast", "Error: task 1 (far) failed: nobody there"),
    ],
)
async def test_a_model_that_can_not_do_it_is_an_error(base: Path, model: str, text: str) -> None:
    team = gather_team(base, "", other=UnreachableError("nobody there"))
    assert await team.delegate("far", model=model) == [text]


async def test_the_last_round_is_announced_and_the_limit_holds(base: Path) -> None:
    looks = "\n---\n".join(
        f'call: read_file {{"path": "notes.txt", "offset": {number + 1}}}'
        for number in range(MAX_ROUNDS)
    )
    team = gather_team(base, looks)
    [result] = await team.delegate("loop")
    assert result.startswith("Error: task 1 (loop) gave no answer.")
    messages = team.watched.sessions[0].messages
    assert messages[-3].content.endswith(LAST_ROUND)
    assert len([m for m in messages if m.role is Role.ASSISTANT]) == MAX_ROUNDS


async def test_stopping_the_turn_stops_them_all(base: Path) -> None:
    team = gather_team(
        base, 'call: execute_command {"command": "sleep 3600"}', mode=ApproveMode.ALL
    )
    turn = asyncio.create_task(team.delegate("a", "b"))

    async def both_run() -> None:
        while sum("execute_command" in line for line in team.lines()) < 2:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(both_run(), PATIENCE)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(turn, PATIENCE)
    assert team.watched.active == 0
    for session in (team.conversation, *team.watched.sessions):
        calls = sum(len(m.tool_calls) for m in session.messages)
        assert calls == sum(m.role is Role.TOOL for m in session.messages) > 0


def test_only_models_that_were_trained_on_it_or_on_nothing_are_offered_it(base: Path) -> None:
    team = gather_team(base, "")
    registry = team.workshop.runner.registry
    pup = ModelInfo("pup", "x", 1024, trained_tools=BUILTIN_TOOLS)
    assert "task" not in [tool.name for tool in offered_tools(registry, Config(), pup)]
    taught = ModelInfo("pup", "x", 1024, trained_tools=BUILTIN_TOOLS | {"task"})
    assert "task" in [tool.name for tool in offered_tools(registry, Config(), taught)]


def test_without_other_providers_a_task_has_no_model(base: Path) -> None:
    tasks = gather_team(base, "").tasks
    assert tasks is not None
    shared = tasks
    alone, beside = (
        RunTask(lambda: shared, lambda _provider: "", names).spec().parameters["properties"]
        for names in ([], ["fast"])
    )
    assert ([*alone], [*beside]) == (["prompt"], ["prompt", "model"])
