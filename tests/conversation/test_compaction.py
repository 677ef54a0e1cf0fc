"""A summary replaces old turns, or nothing changes at all."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

import shepherd
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.conversation.compaction import Compaction, SuggestedFact, compact, old_turns
from shepherd.errors import BackendError, ContextFullError, InvalidRequestError
from shepherd.events import CallbackEvent, Event, EventCallback, Stats, ignore_events
from shepherd.messages import Message, Role, ToolCall
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.transcript import SessionStore
from shepherd.turn import TurnLimits, run_turn
from tests.flat_events import flat
from tests.patience import PATIENCE

FACTS = 'text: "All is well.\\n\\nFACT: deploy command = make ship\\n- FACT: owner: Ada"\n'


class Archive:
    """Keeps what leaves the session."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    @property
    def keeps(self) -> bool:
        return True

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        assert len(messages) == len(times)
        self.messages += messages


def turn(number: int, words: int = 40) -> list[Message]:
    call = ToolCall(f"call_{number}", "read_file", {"path": "a"})
    return [
        Message.user(f"question {number}"),
        Message.assistant("", tool_calls=(call,)),
        Message.tool(call, "word " * words),
        Message.assistant(f"answer {number}"),
    ]


def conversation(turns: int, words: int = 40, archive: Archive | None = None) -> Session:
    messages = [message for number in range(turns) for message in turn(number, words)]
    return Session("Be brief.", messages, archive=archive)


def scripted(script: str) -> ScriptedBackend:
    return ScriptedBackend(parse_script(script))


async def test_a_summary_stands_in_the_place_of_old_turns(tmp_path: Path) -> None:
    store, archive = SessionStore(tmp_path), Archive()
    transcript = store.create(tmp_path, "script", "Be brief.", pytest.fail)
    session = Session("Be brief.", journal=transcript, archive=archive)
    for number in range(5):
        for message in turn(number):
            session.add(message)
    before = list(session.messages)
    done = await compact(session, scripted(FACTS), "the names of files")
    assert archive.messages == before[:12]
    assert session.messages[1:] == before[12:], "the last two turns stay"
    summary = session.messages[0]
    assert summary.is_hint
    assert summary.content.startswith("[Summary of 12 messages, in their place:]")
    assert "All is well." in summary.content
    assert "FACT" not in summary.content
    assert done.facts == (
        SuggestedFact("deploy command", "make ship"), SuggestedFact("owner", "Ada"),
    )  # fmt: skip
    assert done.summary_tokens < done.tokens
    session.add(Message.user("next"))
    transcript.close()
    assert list(store.read(transcript.header.id).messages) == session.messages


async def test_a_conversation_larger_than_the_context_goes_in_pieces() -> None:
    backend = scripted("context: 600\ntext: short\n")
    session = conversation(8, words=180)
    assert await backend.count_session_tokens(session) > 2 * backend.info.context_size
    done = await compact(session, backend)
    assert (done.messages, done.summary) == (24, "short")
    assert len(backend.requests) > 3
    assert set(backend.requests) == {1}
    with pytest.raises(ContextFullError, match="too small"):
        await compact(conversation(8, words=180), scripted("context: 40\ntext: short\n"))


def nothing(event: Event) -> bool:
    kind = flat(event).kind
    return kind is not CallbackEvent.SYSTEM


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("text: a\ndelay: 90\n", asyncio.CancelledError),
        ("context: 600\ntext: short\n---\ntext: a\ndelay: 90\n", asyncio.CancelledError),
        ("error: upstream is gone\n", BackendError),
        ('call: read_file {"path": "a"}\n', InvalidRequestError),
    ],
)
async def test_what_fails_or_is_stopped_changes_nothing(
    script: str, error: type[BaseException]
) -> None:
    archive = Archive()
    session, backend = conversation(8, 180, archive), scripted(script)
    before = list(session.messages), list(session.numbers), session.next_number
    task = asyncio.create_task(compact(session, backend))
    deadline = asyncio.get_running_loop().time() + PATIENCE
    waits = script.count("---") + 1
    while not task.done() and not ("delay" in script and len(backend.requests) == waits):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(error):
        await task
    assert (session.messages, session.numbers, session.next_number) == before
    assert archive.messages == []


async def test_of_two_summaries_at_once_the_second_one_replaces_nothing() -> None:
    session, backend = conversation(8, 180), scripted("text: short\n")
    last = session.messages[old_turns(session.messages).stop :]
    both = await asyncio.gather(
        compact(session, backend), compact(session, backend), return_exceptions=True
    )
    assert [type(each) for each in both] == [Compaction, InvalidRequestError]
    assert session.messages[1:] == last


async def test_a_summary_that_is_not_shorter_changes_nothing() -> None:
    session, backend = conversation(8), scripted(f"text: {'word ' * 800}\n")
    before = list(session.messages)
    with pytest.raises(InvalidRequestError, match="not shorter"):
        await compact(session, backend)
    assert session.messages == before


@pytest.mark.parametrize("words", [20, 3000])
async def test_a_summary_that_was_cut_says_so(words: int) -> None:
    session = conversation(8, words=400)
    done = await compact(session, scripted(f"text: {'word ' * words}\n"))
    assert done.cut is (words == 3000)
    assert ("its end is missing" in done.text) is done.cut


async def test_a_callback_stops_it() -> None:
    session = conversation(8, 180)
    before = list(session.messages)
    with pytest.raises(InvalidRequestError, match="stopped"):
        await compact(session, scripted("context: 600\ntext: short\n"), callback=nothing)
    assert session.messages == before


async def test_the_last_turns_are_not_summarised() -> None:
    with pytest.raises(InvalidRequestError, match="nothing to summarise"):
        await compact(conversation(1), scripted("text: x\n"))
    assert old_turns(conversation(2).messages) == range(4)
    assert old_turns(conversation(3).messages) == range(4)
    assert old_turns(conversation(4).messages) == range(8)
    long_turn = [Message.user("go"), *turn(0)[1:3], *turn(1)[1:3], *turn(2)[1:4]]
    assert old_turns(long_turn) == range(1, 5)


class NoTools:
    """No call is made here."""

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        raise AssertionError


async def test_a_shared_beginning_stays_in_the_cache() -> None:
    section = LlamaCppSection(threads=1, context_size=1024)
    backend = await LlamaCppBackend.load(
        builtin_model(), section, Sampling(temperature=0.0), name=BUILTIN_NAME
    )
    stats: list[Stats] = []

    async def ask(session: Session, text: str) -> None:
        limits = TurnLimits(max_tokens=16)
        outcome = await run_turn(session, text, backend, NoTools(), ignore_events, limits)
        stats.extend(outcome.stats)

    session = Session("You are a helpful assistant.", id="one")
    try:
        await ask(session, "hello " * 60)
        shared = stats[-1].prompt_tokens
        await ask(session, "What is two and two?")
        done = await compact(Session(session.system_message, list(session.messages)), backend)
        assert done.summary.startswith("User: hello hello")
        session.branch_off(2)
        await ask(session, "Which day is it?")
        assert stats[-1].cached_tokens >= shared - 8
        assert stats[-1].cached_tokens > stats[-1].prompt_tokens // 2
    finally:
        await backend.aclose()


async def test_it_works_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.txt"
    script.write_text(f"text: {'word ' * 100}\n---\ntext: short\n---\n{FACTS}")
    async with shepherd.open(model=f"script:{script}", save=True) as chat:
        for number in range(2):
            await chat.answer(f"question {number}")
        done = await chat.compact("the question")
        assert done.facts[0].name == "deploy command"
        await chat.remember(done.facts[0].name, done.facts[0].value)
        roles = [message.role for message in chat.messages]
        assert roles == [Role.USER, Role.USER, Role.ASSISTANT]
        session = chat.id
    async with shepherd.open(model=f"script:{script}", session=session) as chat:
        assert chat.messages[0].is_hint
