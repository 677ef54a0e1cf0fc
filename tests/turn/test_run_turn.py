"""The turn loop, driven by scripts."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BackendError, ContextFullError
from shepherd.events import (
    CallbackEvent,
    Event,
    EventCallback,
    FinishReason,
    Topic,
    ignore_events,
)
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import TurnLimits, TurnOutcome, run_turn
from tests.flat_events import Flat, flat

TWO_CALLS = """
chunk: 3
think: I should look.
text: Looking.
call: read_file {"path": "a.txt"}
call: read_file {"path": "b.txt"}
---
text: Both are empty.
"""


@dataclass
class Recorder:
    """Keeps events; says False at event number `cancel_at`."""

    cancel_at: int | None = None
    events: list[Flat] = field(default_factory=list[Flat])

    def __call__(self, event: Event) -> bool:
        self.events.append(flat(event))
        return len(self.events) - 1 != self.cancel_at

    def kinds(self) -> list[CallbackEvent]:
        return [e for e, _, _, _ in self.events]

    def of(self, kind: CallbackEvent) -> list[str]:
        return [content for e, content, _, _ in self.events if e is kind]


@dataclass
class Tools:
    """Answers every call with `answer`."""

    answer: Callable[[ToolCall], str] = lambda call: f"result of {call.arguments_json}"
    hang: bool = False
    ran: list[ToolCall] = field(default_factory=list[ToolCall])
    output_bytes: int | None = None

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        self.ran.append(call)
        self.output_bytes = output_bytes
        if self.hang:
            await asyncio.sleep(3600)
        return ToolResult(self.answer(call))


async def turn(
    session: Session,
    script: str | ScriptedBackend,
    recorder: Recorder,
    tools: Tools | None = None,
    limits: TurnLimits | None = None,
) -> TurnOutcome:
    backend = ScriptedBackend(parse_script(script)) if isinstance(script, str) else script
    return await run_turn(session, "hello", backend, tools or Tools(), recorder, limits)


def untimed(events: list[Flat]) -> list[Flat]:
    return [e._replace(content="") if e.kind is CallbackEvent.STATS else e for e in events]


def assert_consistent(session: Session) -> None:
    """Every call has exactly one result, right behind it, and the ledger runs parallel."""
    assert len(session.ledger.counts) == len(session.messages)
    waiting: list[str] = []
    for message in session.messages:
        if message.role is Role.TOOL:
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [c.id for c in message.tool_calls]
    assert waiting == []


async def test_events_come_in_the_order_of_the_contract() -> None:
    recorder, session = Recorder(), Session()
    outcome = await turn(session, TWO_CALLS, recorder)
    assert outcome.finish_reason is FinishReason.STOP
    kinds = [k for i, k in enumerate(recorder.kinds()) if i == 0 or k != recorder.kinds()[i - 1]]
    assert kinds == [
        CallbackEvent.USER_PROMPT,
        CallbackEvent.THINKING,
        CallbackEvent.CONTENT,
        CallbackEvent.STATS,
        CallbackEvent.STOP,
        CallbackEvent.TOOL_CALL,
        CallbackEvent.TOOL_RESULT,
        CallbackEvent.CONTENT,
        CallbackEvent.STATS,
        CallbackEvent.STOP,
    ]
    assert recorder.of(CallbackEvent.STOP) == ["tool_calls", "stop"]
    assert_consistent(session)


async def test_history_keeps_content_reasoning_and_calls_apart() -> None:
    session = Session()
    await turn(session, TWO_CALLS, Recorder())
    user, assistant, first, second, answer = session.messages
    assert user == Message.user("hello")
    assert (assistant.content, assistant.reasoning) == ("Looking.", "I should look.")
    assert [c.arguments for c in assistant.tool_calls] == [{"path": "a.txt"}, {"path": "b.txt"}]
    assert (first.tool_call_id, second.tool_call_id) == tuple(c.id for c in assistant.tool_calls)
    assert answer == Message.assistant("Both are empty.")


async def test_cancel_at_every_event_leaves_a_session_that_goes_on() -> None:
    complete = Recorder()
    await turn(Session(), TWO_CALLS, complete)
    for index in range(len(complete.events)):
        recorder, session = Recorder(cancel_at=index), Session()
        outcome = await turn(session, TWO_CALLS, recorder)
        assert outcome.finish_reason is FinishReason.CANCELLED
        assert untimed(recorder.events) == untimed(complete.events)[: index + 1]
        assert_consistent(session)
        after = Recorder()
        assert (await turn(session, "text: fine", after)).finish_reason is FinishReason.STOP
        assert after.of(CallbackEvent.CONTENT) == ["fine"]
        assert_consistent(session)


async def test_a_cancelled_generation_keeps_what_was_said() -> None:
    recorder, session = Recorder(cancel_at=2), Session()
    await turn(session, "chunk: 2\ntext: abcdef", recorder)
    assert session.messages == [Message.user("hello"), Message.assistant("abcd")]


@pytest.mark.parametrize("script", ["text: half\ndelay: 3600", TWO_CALLS])
async def test_cancelling_the_task_keeps_the_session_whole(script: str) -> None:
    session, tools = Session(), Tools(hang=True)
    recorder = Recorder()
    task = asyncio.create_task(turn(session, script, recorder, tools))
    while CallbackEvent.CONTENT not in recorder.kinds() or (script is TWO_CALLS and not tools.ran):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_consistent(session)
    assert session.messages[1].content in {"half", "Looking."}
    if script is TWO_CALLS:
        assert {m.content for m in session.messages[2:]} == {"Error: interrupted by the user"}


class Closing(ScriptedBackend):
    """Is closed while a tool runs: counting fails from then on."""

    closed = False

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        if self.closed:
            raise BackendError("the model was closed")
        return await super().count_message_tokens(session, message)


async def test_a_backend_that_fails_between_the_calls_leaves_no_call_without_result() -> None:
    backend, session = Closing(parse_script(TWO_CALLS)), Session()

    def close(call: ToolCall) -> str:
        backend.closed = True
        return "x" * 100_000

    with pytest.raises(BackendError, match="closed"):
        await turn(session, backend, Recorder(), Tools(answer=close))
    assert_consistent(session)


async def test_the_third_equal_call_is_reminded_and_the_fifth_ends_the_turn() -> None:
    recorder, session, tools = Recorder(), Session(), Tools()
    outcome = await turn(session, 'call: get {"a": 1}', recorder, tools)
    assert outcome.finish_reason is FinishReason.ERROR
    assert len(tools.ran) == 4
    results = recorder.of(CallbackEvent.TOOL_RESULT)
    assert [("made 3 times" in r, "made 4 times" in r) for r in results[:4]] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert results[4].startswith("Error: not run again")
    assert "same call of get 5 times" in recorder.of(CallbackEvent.ERROR)[0]
    assert_consistent(session)


async def test_calls_between_which_something_new_happens_are_no_loop() -> None:
    script = "\n---\n".join(
        f'call: read {{"path": "a"}}\n---\ncall: edit {{"new": "{i}"}}' for i in range(8)
    )
    recorder = Recorder()
    outcome = await turn(Session(), script + "\n---\ntext: done", recorder)
    assert outcome.finish_reason is FinishReason.STOP
    assert not any("exact call" in r for r in recorder.of(CallbackEvent.TOOL_RESULT))


async def test_two_calls_in_alternation_are_a_loop() -> None:
    recorder = Recorder()
    outcome = await turn(Session(), "call: a\n---\ncall: b", recorder)
    assert outcome.finish_reason is FinishReason.ERROR


async def test_a_full_context_evicts_the_oldest_turns_and_retries() -> None:
    backend = ScriptedBackend(parse_script("context: 60\ntext: one two three four five six"))
    session, notices = Session(), list[list[str]]()
    for _ in range(12):
        recorder = Recorder()
        outcome = await turn(session, backend, recorder)
        assert outcome.finish_reason is FinishReason.STOP
        assert_consistent(session)
        notices.append([n for e, _, n, _ in recorder.events if e is CallbackEvent.SYSTEM])
    assert all(topics in ([], [Topic.EVICTION]) for topics in notices), "at most one a turn"
    assert [Topic.EVICTION] in notices
    assert session.messages[0].role is Role.USER
    assert 0 < len(session.messages) < 12


async def test_an_eighth_of_the_context_stays_free_for_the_answer() -> None:
    backend = ScriptedBackend(parse_script("context: 80\ntext: one two three four five six"))
    session = Session()
    for _ in range(20):
        outcome = await turn(session, backend, Recorder())
        assert outcome.stats[0].prompt_tokens <= 70


async def test_a_prompt_that_leaves_little_room_is_answered_all_the_same() -> None:
    recorder = Recorder()
    backend = ScriptedBackend(parse_script("context: 80\ntext: fine"))
    outcome = await run_turn(Session(), "word " * 73, backend, Tools(), recorder)
    assert outcome.finish_reason is FinishReason.STOP
    assert recorder.of(CallbackEvent.SYSTEM) == []


async def test_a_prompt_that_can_never_fit_is_refused_and_loses_nothing() -> None:
    backend = ScriptedBackend(parse_script("context: 60\ntext: fine"))
    session = Session()
    await turn(session, backend, Recorder())
    before = list(session.messages)
    recorder = Recorder()
    with pytest.raises(ContextFullError, match="does not fit"):
        await run_turn(session, "word " * 500, backend, Tools(), recorder)
    assert session.messages == before
    assert recorder.kinds()[-1] is CallbackEvent.ERROR


async def test_an_overflow_by_next_to_nothing_frees_a_share_each_time() -> None:
    """An eighth for the answer and a quarter of slack, twice."""
    session = Session(messages=[Message.user("old words here"), Message.assistant("yes")] * 20)
    script = "context: 400\nfull: 1\n---\nfull: 1\n---\ntext: fits"
    outcome = await turn(session, script, Recorder())
    assert outcome.finish_reason is FinishReason.STOP
    left = 40 * 5 / 8 * 5 / 8
    assert left - 2 <= len(session.messages) <= left + 6


async def test_a_large_tool_result_is_cut_to_its_share() -> None:
    session = Session()
    tools = Tools(answer=lambda call: "word " * 5000)
    await turn(session, "context: 400\ncall: big\n---\ntext: ok", Recorder(), tools)
    result = session.messages[2].content
    assert len(result) < 600
    assert "cut to fit the context" in result


async def test_a_failing_backend_sends_an_error_and_raises() -> None:
    recorder, session = Recorder(), Session()
    with pytest.raises(BackendError, match="gone"):
        await turn(session, "error: upstream is gone", recorder)
    assert recorder.events[-1] == (CallbackEvent.ERROR, "upstream is gone", "BackendError", "")
    assert_consistent(session)


async def test_rounds_are_limited() -> None:
    script = "\n---\n".join(f'call: get {{"a": {i}}}' for i in range(20))
    recorder = Recorder()
    outcome = await turn(Session(), script, recorder, limits=TurnLimits(max_rounds=7))
    assert outcome.finish_reason is FinishReason.ERROR
    assert len(recorder.of(CallbackEvent.TOOL_RESULT)) == 7


async def test_stats_reach_the_ledger() -> None:
    session, recorder = Session(), Recorder()
    outcome = await turn(session, "context: 1000\ntext: one two", recorder)
    stats = json.loads(recorder.of(CallbackEvent.STATS)[0])
    assert stats["completion_tokens"] == 2
    assert session.ledger.context_used == outcome.stats[0].context_used > 0
    assert session.ledger.context_size == 1000


async def test_a_tool_is_told_how_long_its_text_may_be() -> None:
    tools = Tools()
    await turn(Session(), "context: 400\ncall: read\n---\ntext: ok", Recorder(), tools)
    assert tools.output_bytes is not None
    assert 100 <= tools.output_bytes <= 400
