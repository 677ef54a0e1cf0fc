"""A call that was not understood: the model is told and tries again."""

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import (
    CallbackEvent,
    Event,
    EventCallback,
    FinishReason,
    Topic,
    ignore_events,
)
from shepherd.messages import Message, Role, ToolCall, ToolSpec, message_from_json, message_to_json
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import TurnLimits, run_turn
from tests.flat_events import flat

BROKEN = "text: <tool_call>{\nproblem: The call of read_file is not valid JSON."
AGAIN = f'{BROKEN}\n---\ncall: read_file {{"path": "a"}}\n---\ntext: done'


class Recorder:
    """Keeps events; says False at the first of `cancel_at`'s topic."""

    def __init__(self, cancel_at: Topic | None = None) -> None:
        self.events: list[tuple[CallbackEvent, str, str]] = []
        self.cancel_at = cancel_at

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        self.events.append((kind, content, name))
        return not name or name != self.cancel_at

    def hints(self) -> list[str]:
        return [c for e, c, n in self.events if (e, n) == (CallbackEvent.SYSTEM, Topic.HINT)]


class Tools:
    """Gives every call the same result."""

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        return ToolResult("result")


def with_tools() -> Session:
    return Session(tools=[ToolSpec("read_file", "")])


async def turn(
    session: Session, script: str, recorder: Recorder, limits: TurnLimits | None = None
) -> FinishReason:
    backend = ScriptedBackend(parse_script(script))
    outcome = await run_turn(session, "hello", backend, Tools(), recorder, limits)
    return outcome.finish_reason


async def test_the_model_is_told_what_was_wrong_and_tries_again() -> None:
    session, recorder = with_tools(), Recorder()
    assert await turn(session, AGAIN, recorder) is FinishReason.STOP
    roles = [m.role for m in session.messages]
    user, assistant, tool = Role.USER, Role.ASSISTANT, Role.TOOL
    assert roles == [user, assistant, user, assistant, tool, assistant]
    hint = session.messages[2]
    assert hint.is_hint
    assert "read_file is not valid JSON" in hint.content
    assert [m.is_hint for m in session.messages].count(True) == 1
    assert message_from_json(message_to_json(hint)) == hint


async def test_the_user_sees_it_behind_the_text_and_before_the_next_answer() -> None:
    recorder = Recorder()
    await turn(with_tools(), AGAIN, recorder)
    assert len(recorder.hints()) == 1
    assert "tries again" in recorder.hints()[0]
    kinds = [e for e, _, _ in recorder.events]
    first_stop = kinds.index(CallbackEvent.STOP)
    assert kinds[first_stop + 1] is CallbackEvent.SYSTEM
    assert kinds.count(CallbackEvent.USER_PROMPT) == 1


async def test_after_some_hints_the_text_is_the_answer() -> None:
    session, recorder = with_tools(), Recorder()
    assert await turn(session, BROKEN, recorder) is FinishReason.STOP
    assert sum(m.is_hint for m in session.messages) == 2
    assert session.messages[-1] == Message.assistant("<tool_call>{")
    assert ["was not run" in text for text in recorder.hints()] == [False, False, True]


async def test_hints_count_as_rounds() -> None:
    limits = TurnLimits(max_rounds=2, max_hints=10)
    session, recorder = with_tools(), Recorder()
    assert await turn(session, BROKEN, recorder, limits) is FinishReason.ERROR
    assert sum(m.is_hint for m in session.messages) == 2


async def test_hints_can_be_turned_off() -> None:
    session, recorder = with_tools(), Recorder()
    assert await turn(session, BROKEN, recorder, TurnLimits(max_hints=0)) is FinishReason.STOP
    assert len(session.messages) == 2
    assert "was not run" in recorder.hints()[0]


async def test_without_tools_nobody_is_told_anything() -> None:
    session, recorder = Session(), Recorder()
    assert await turn(session, BROKEN, recorder) is FinishReason.STOP
    assert len(session.messages) == 2
    assert recorder.hints() == []


async def test_an_answer_that_was_cut_is_not_asked_for_again() -> None:
    session, recorder = with_tools(), Recorder()
    assert await turn(session, f"{BROKEN}\nfinish: length", recorder) is FinishReason.LENGTH
    assert len(session.messages) == 2
    assert recorder.hints() == []


async def test_a_call_that_was_understood_is_run_without_a_hint() -> None:
    session, recorder = with_tools(), Recorder()
    script = f"{BROKEN}\ncall: read_file\n---\ntext: done"
    assert await turn(session, script, recorder) is FinishReason.STOP
    assert recorder.hints() == []


async def test_cancelling_at_the_notice_ends_the_turn_without_a_hint() -> None:
    session, recorder = with_tools(), Recorder(cancel_at=Topic.HINT)
    assert await turn(session, BROKEN, recorder) is FinishReason.CANCELLED
    assert [m.role for m in session.messages] == [Role.USER, Role.ASSISTANT]


async def test_a_hint_never_makes_room_by_pushing_out_the_question() -> None:
    """With a full context the broken attempts go, oldest first, the user's words stay."""
    attempts = "\n---\n".join(f"text: {'word ' * 30}{i}\nproblem: broken" for i in range(6))
    session = with_tools()
    script = f"context: 160\n{attempts}\n---\ntext: done"
    assert await turn(session, script, Recorder(), TurnLimits(max_hints=10)) is FinishReason.STOP
    assert session.messages[0] == Message.user("hello")
    assert session.messages[-1] == Message.assistant("done")
    assert sum(m.is_hint for m in session.messages) < 6
