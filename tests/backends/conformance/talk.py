"""Conversations with a subject, and what must hold of them."""

from dataclasses import dataclass, field

from shepherd.backends.base import Backend
from shepherd.events import CallbackEvent, EventCallback, FinishReason, ignore_events
from shepherd.messages import Message, Role, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import TurnOutcome, run_turn
from tests.backends.api.support import Events
from tests.flat_events import TEXT_KINDS
from tests.turn.guessing import assert_valid

READ = ToolSpec(
    "read_file",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@dataclass
class Files:
    """Runs every call, and keeps it."""

    ran: list[ToolCall] = field(default_factory=list[ToolCall])

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        self.ran.append(call)
        return ToolResult(f"It says {call.arguments['path']}.")


def asking(*, tools: bool = False, thinking: bool = False) -> Session:
    """A session in which nothing was said."""
    return Session("Be brief.", tools=[READ] if tools else [], thinking=thinking)


def question() -> Session:
    """A session in which everything may be answered."""
    session = asking(tools=True, thinking=True)
    session.add(Message.user("Go on."))
    return session


async def turn(
    session: Session,
    backend: Backend,
    events: Events | None = None,
    files: Files | None = None,
    prompt: str = "Go on.",
) -> TurnOutcome:
    """A turn after which the session is one that any API takes, and no error was shown."""
    events = events or Events()
    outcome = await run_turn(session, prompt, backend, files or Files(), events)
    assert_valid(session)
    assert events.of(CallbackEvent.ERROR) == []
    check_order(events)
    return outcome


async def goes_on(session: Session, backend: Backend, text: str) -> None:
    """One more turn is answered with `text`."""
    outcome = await turn(session, backend)
    assert outcome.finish_reason is FinishReason.STOP
    assert (session.messages[-1].role, session.messages[-1].content) == (Role.ASSISTANT, text)


def shown(events: Events, *kinds: CallbackEvent) -> str:
    """The text that the user saw."""
    return "".join(events.of(*(kinds or TEXT_KINDS)))


def check_order(events: Events) -> None:
    """Of each generation: text, STATS, STOP, then calls; and all of it can be written as UTF-8."""
    stopped = False
    for event, content, name, call_id in events.all:
        f"{content}{name}{call_id}".encode()
        if event in TEXT_KINDS:
            stopped = False
        elif event is CallbackEvent.STOP:
            assert not stopped
            stopped = True
        elif event is CallbackEvent.TOOL_CALL or event is CallbackEvent.TOOL_RESULT:
            assert stopped
