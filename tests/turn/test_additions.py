"""Messages that join a session during a turn."""

import asyncio

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.conversation.additions import Additions
from shepherd.events import (
    CallbackEvent,
    Event,
    EventCallback,
    FinishReason,
    Topic,
    ignore_events,
)
from shepherd.messages import Message, Role, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import run_turn
from tests.flat_events import flat

CALL_THEN_ANSWER = 'call: read_file {"path": "a"}\n---\ntext: one\n---\ntext: two'


class Tools:
    """Lets the user steer while a call runs."""

    def __init__(self, additions: Additions, *texts: str) -> None:
        self.additions = additions
        self.texts = list(texts)

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        for text in self.texts:
            self.additions.steer(Message.user(text))
        self.texts.clear()
        return ToolResult("result")


def new_session(additions: Additions) -> Session:
    return Session(tools=[ToolSpec("read_file", "")], additions=additions)


async def answer(session: Session, script: str, tools: Tools) -> FinishReason:
    backend = ScriptedBackend(parse_script(script))
    outcome = await run_turn(session, "hello", backend, tools, ignore_events)
    return outcome.finish_reason


def texts(session: Session) -> list[tuple[Role, str]]:
    return [(m.role, m.content) for m in session.messages if not m.tool_calls]


async def test_a_message_joins_after_the_results_of_the_round() -> None:
    additions = Additions()
    session = new_session(additions)
    reason = await answer(session, CALL_THEN_ANSWER, Tools(additions, "also b", "and c"))
    assert reason is FinishReason.STOP
    assert texts(session) == [
        (Role.USER, "hello"),
        (Role.TOOL, "result"),
        (Role.USER, "also b"),
        (Role.USER, "and c"),
        (Role.ASSISTANT, "one"),
    ]
    assert not additions.waiting


async def test_notes_for_a_prompt_that_was_stopped_before_it_began_go_with_the_next_one() -> None:
    asked = asyncio.Event()

    async def told_once() -> str:
        return "" if asked.is_set() else "The plan mode is on."

    async def asks_the_user() -> str:
        if asked.is_set():
            return ""
        asked.set()
        await asyncio.Event().wait()
        return "never"

    additions = Additions(prefaces=[told_once, asks_the_user])
    additions.note("A command has ended.")
    session = new_session(additions)
    stopped = asyncio.create_task(answer(session, "text: one", Tools(additions)))
    await asked.wait()
    stopped.cancel()
    await asyncio.wait([stopped])
    await answer(session, "text: one", Tools(additions))
    prompt = session.messages[0].content
    assert prompt.index("A command has ended.") < prompt.index("The plan mode is on.")


async def test_a_message_after_the_last_answer_continues_the_turn() -> None:
    additions = Additions()
    session = new_session(additions)
    additions.steer(Message.user("more"))
    reason = await answer(session, "text: one\n---\ntext: two", Tools(additions))
    assert reason is FinishReason.STOP
    assert [text for _, text in texts(session)] == ["hello", "one", "more", "two"]


async def test_a_stopped_turn_leaves_the_message() -> None:
    additions = Additions()
    session = new_session(additions)
    additions.steer(Message.user("more"), "typed")
    backend = ScriptedBackend(parse_script(CALL_THEN_ANSWER))

    def stop(event: Event) -> bool:
        kind = flat(event).kind
        return kind is not CallbackEvent.TOOL_RESULT

    outcome = await run_turn(session, "hello", backend, Tools(additions), stop)
    assert outcome.finish_reason is FinishReason.CANCELLED
    assert additions.waiting == ["typed"]
    assert additions.take_back() == "typed"
    assert additions.take_back() is None


async def test_notes_go_with_the_next_prompt_and_are_not_shown() -> None:
    additions = Additions()
    session = new_session(additions)
    shown: list[str] = []

    def listen(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        shown.extend([content] * (kind is CallbackEvent.USER_PROMPT))
        return True

    additions.note("the build has ended")
    backend = ScriptedBackend(parse_script("text: one"))
    await run_turn(session, "hello", backend, Tools(additions), listen)
    prompt = session.messages[0].content
    assert "the build has ended" in prompt
    assert shown == ["hello"] == [without_attachments(prompt)]


async def test_a_note_alone_does_not_continue_a_turn() -> None:
    async def late(_answer: str, _continued: int) -> str:
        additions.note("too late")
        return ""

    additions = Additions(turn_ends=[late])
    session = new_session(additions)
    await answer(session, "text: one\n---\ntext: two", Tools(additions))
    assert [text for _, text in texts(session)] == ["hello", "one"]


async def test_the_end_of_a_turn_can_continue_it_and_counts() -> None:
    counts: list[int] = []

    async def again(_answer: str, continued: int) -> str:
        counts.append(continued)
        return "go on" if continued < 2 else ""

    additions = Additions(turn_ends=[again])
    session = new_session(additions)
    script = "\n---\n".join(["text: x"] * 4)
    assert await answer(session, script, Tools(additions)) is FinishReason.STOP
    assert counts == [0, 1, 2]
    assert [m.is_hint for m in session.messages].count(True) == 2
    await answer(session, script, Tools(additions))
    assert counts == [0, 1, 2] * 2


async def test_the_events_name_their_topics() -> None:
    additions = Additions(
        turn_ends=[lambda _answer, continued: _text("" if continued else "go on")]
    )
    session = new_session(additions)
    topics: list[tuple[str, str]] = []

    def listen(event: Event) -> bool:
        kind, content, name, _ = flat(event)
        topics.extend([(name, content)] * (kind is CallbackEvent.SYSTEM))
        return True

    additions.steer(Message.user("more"))
    backend = ScriptedBackend(parse_script("text: 1\n---\ntext: 2\n---\ntext: 3"))
    await run_turn(session, "hello", backend, Tools(additions), listen)
    assert topics == [(Topic.STEERING, "more"), (Topic.HINT, "go on")]


async def _text(text: str) -> str:
    return text
