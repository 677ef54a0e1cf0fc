"""A conversation whose model can ask another one, both played by scripts."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.agents import Asking, AskProvider, DelegateBackends
from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.provider import make_provider
from shepherd.config.section import ApproveMode
from shepherd.events import CallbackEvent, Event
from shepherd.messages import ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.registry import default_registry
from shepherd.tools.tool import AnyTool, ToolResult
from shepherd.turn import TurnLimits
from tests.flat_events import flat
from tests.tools.workshop import Workshop, open_workshop


@dataclass
class Office:
    """`fast` is the provider that is asked; `opened` are the backends that were opened for it."""

    workshop: Workshop
    conversation: Session
    opens: list[Backend | Exception]
    opened: list[Backend] = field(default_factory=list[Backend])
    events: list[tuple[CallbackEvent, str, str]] = field(
        default_factory=list[tuple[CallbackEvent, str, str]]
    )
    deaf_after: int | None = None
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])

    async def ask(self, question: str, *, fresh: bool = False) -> ToolResult:
        call = ToolCall("call_1_0", "ask_fast", {"question": question, "fresh": fresh})
        return await self.workshop.runner.run(call, on_event=self.hear)

    def hear(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        self.events.append((kind, content, name))
        return len(self.events) != self.deaf_after

    @property
    def delegate_session(self) -> Session:
        return self.sessions["fast"]

    @property
    def lines(self) -> list[str]:
        return [content for event, content, _ in self.events if event is CallbackEvent.SYSTEM]

    async def open(self, provider: str) -> Backend:
        assert provider == "fast"
        await asyncio.sleep(0)
        opened = self.opens.pop(0)
        if isinstance(opened, Exception):
            raise opened
        self.opened.append(opened)
        return opened


def open_office(
    base: Path,
    *opens: str | Backend | Exception,
    mode: ApproveMode = ApproveMode.ASK,
    answers: Iterable[Choice] = (),
    rules: Iterable[str] = (),
    limits: TurnLimits | None = None,
    address: str = "",
) -> Office:
    """An office below `base`; `opens` is what opening `fast` gives, one after the other."""
    registry = default_registry()
    workshop = open_workshop(base, mode=mode, answers=answers, rules=rules, registry=registry)
    played = [
        ScriptedBackend(parse_script(o), "gpt-5-mini") if isinstance(o, str) else o for o in opens
    ]
    office = Office(workshop, Session(id="s1"), played)

    def offer(tools: Iterable[AnyTool], _model: ModelInfo) -> list[ToolSpec]:
        return [tool.spec() for tool in tools]

    asking = Asking(
        backends=DelegateBackends(office.open),
        session=lambda: office.conversation,
        limits=lambda: limits or TurnLimits(),
        offer=offer,
        address=lambda _provider: address,
        sessions=office.sessions,
    )
    provider = make_provider("fast", {"type": "openai", "model": "gpt-5-mini"})
    registry.add(AskProvider("ask_fast", provider, asking))
    return office
