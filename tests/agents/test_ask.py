"""Asking another provider's model: its session, its tools, its limits, its failures."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from shepherd.agents.ask import MAX_ROUNDS
from shepherd.agents.progress import LAST_ROUND
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.section import ApproveMode
from shepherd.errors import AccessError, UnreachableError
from shepherd.events import CallbackEvent, Event, Topic
from shepherd.messages import INTERRUPTED, Message, Role, ToolCall
from shepherd.tools.permissions.approval import Choice
from shepherd.turn import TurnLimits, run_turn
from tests.agents.office import Office, open_office
from tests.flat_events import flat
from tests.patience import PATIENCE

LOOK = 'call: read_file {"path": "notes.txt"}\n---\ntext: Milk.'
WRITE = 'call: write_file {"path": "new.txt", "content": "x"}\n---\ntext: Done.'

SLEEP = 'call: execute_command {"command": "sleep 3600"}'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("buy milk\n")
    return tmp_path


def assert_whole(office: Office) -> None:
    """Every call of the asked model has its result, and nothing holds its backend."""
    waiting: list[str] = []
    for message in office.delegate_session.messages:
        if message.role is Role.TOOL:
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call.id for call in message.tool_calls]
    assert waiting == []
    assert all(isinstance(b, ScriptedBackend) and b.active == 0 for b in office.opened)


async def test_the_answer_is_the_result_and_the_rest_is_told(base: Path) -> None:
    office = open_office(base, f"text: I look.\n{LOOK}")
    result = await office.ask("What is in notes.txt?")
    assert (result.ok, result.content) == (True, "Milk.")
    assert office.lines == ['fast: read_file {"path": "notes.txt"}']
    kinds = [(event, name) for event, _, name in office.events]
    stats = (CallbackEvent.STATS, "fast")
    assert kinds == [stats, (CallbackEvent.SYSTEM, Topic.PROGRESS), stats]
    assert json.loads(office.events[0][1])["completion_tokens"] == 3
    assert office.conversation.messages == []
    texts = [m.content for m in office.delegate_session.messages]
    assert texts[::3] == ["What is in notes.txt?", "Milk."]
    assert str(office.workshop.root) in office.delegate_session.system_message


async def test_it_remembers_until_it_is_to_forget(base: Path) -> None:
    office = open_office(base, "text: yes")
    for question in ("one", "two"):
        await office.ask(question)
    [backend] = office.opened
    assert isinstance(backend, ScriptedBackend)
    assert backend.requests == [1, 3]
    await office.ask("three", fresh=True)
    assert [m.content for m in office.delegate_session.messages] == ["three", "yes"]


async def test_what_needs_a_yes_is_asked_in_its_name(base: Path) -> None:
    office = open_office(base, WRITE, answers=[Choice.DENY, Choice.SESSION])
    assert (await office.ask("write")).content == "Done."
    assert not (office.workshop.root / "new.txt").exists()
    assert office.lines[1] == "fast: write_file: Error: denied by the user"
    for _ in range(2):
        await office.ask("write now")
    assert (office.workshop.root / "new.txt").read_text() == "x"
    requests = office.workshop.approver.requests
    assert [r.caller for r in requests] == ["fast (gpt-5-mini)"] * 2
    assert all(r.call.id.startswith("fast (gpt-5-mini): ") for r in requests)
    await office.workshop.call("write_file", path="new.txt", content="y")
    assert len(requests) == 2, "the rule holds for both models"


async def test_it_can_not_ask_in_turn(base: Path) -> None:
    office = open_office(base, 'call: ask_fast {"question": "you"}\n---\ntext: Alone.')
    assert (await office.ask("who?")).content == "Alone."
    assert "Error: unknown tool: ask_fast" in [m.content for m in office.delegate_session.messages]
    offered = {spec.name for spec in office.delegate_session.tools}
    assert "read_file" in offered
    assert "ask_fast" not in offered


async def test_ten_rounds_and_no_more(base: Path) -> None:
    rounds = [f'call: glob {{"pattern": "{n}"}}' for n in range(20)]
    office = open_office(base, "\n---\n".join(rounds))
    result = await office.ask("forever?")
    assert not result.ok
    assert result.content.startswith("Error: fast (gpt-5-mini) gave no answer. Stopped after 10")
    [backend] = office.opened
    assert isinstance(backend, ScriptedBackend)
    assert len(backend.requests) == MAX_ROUNDS
    results = [m.content for m in office.delegate_session.messages if m.role is Role.TOOL]
    assert [LAST_ROUND in text for text in results] == [n == 8 for n in range(10)]
    assert_whole(office)


async def test_fewer_rounds_where_the_settings_say_so(base: Path) -> None:
    office = open_office(base, LOOK, limits=TurnLimits(max_rounds=1))
    assert "Stopped after 1 rounds" in (await office.ask("x")).content


@pytest.mark.parametrize("script", ["text: half\ndelay: 3600", SLEEP])
async def test_cancelling_the_turn_cancels_it_too(base: Path, script: str) -> None:
    office = open_office(base, script, mode=ApproveMode.ALL)
    backend = ScriptedBackend(parse_script('call: ask_fast {"question": "x"}'))
    conversation, started = office.conversation, asyncio.Event()

    def listen(event: Event) -> bool:
        kind, _, name, _ = flat(event)
        if kind is CallbackEvent.STATS and name == "fast":
            started.set()
        return True

    runner = office.workshop.runner
    turn = asyncio.ensure_future(run_turn(conversation, "go", backend, runner, listen))
    async with asyncio.timeout(PATIENCE):
        if "delay" in script:
            while not (office.opened and len(office.delegate_session.messages)):
                await asyncio.sleep(0.005)
        else:
            await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert conversation.messages[-1].content == INTERRUPTED
    assert_whole(office)


async def test_nobody_listening_any_more_ends_it(base: Path) -> None:
    office = open_office(base, LOOK)
    office.deaf_after = 1
    result = await office.ask("x")
    assert (result.ok, result.content) == (False, INTERRUPTED)
    assert len(office.events) == 1
    assert_whole(office)


async def test_what_keeps_it_from_answering_is_the_result(base: Path) -> None:
    unreachable, refused = UnreachableError("fast can't be reached."), AccessError("fast refuses.")
    office = open_office(base, unreachable, refused, "error: the stream broke\n---\ntext: Now.")
    for expected in ("fast can't be asked: fast can't be reached.", "fast can't be asked: fast ref",
                 "fast (gpt-5-mini) failed: the stream broke"):  # fmt: skip
        result = await office.ask("what?")
        assert not result.ok
        assert result.content.startswith(f"Error: {expected}")
    assert office.delegate_session.messages == []
    assert (await office.ask("again?")).content == "Now."
    assert len(office.opened) == 1


class Mortal(ScriptedBackend):
    """Answers once and has then failed for good."""

    def __init__(self, closed: list[str]) -> None:
        super().__init__(parse_script("text: hi"), "mortal")
        self.closed = closed

    @property
    def alive(self) -> bool:
        return not self.requests

    async def aclose(self) -> None:
        self.closed.append(self.name)


async def test_one_that_has_failed_for_good_is_opened_again(base: Path) -> None:
    closed: list[str] = []
    office = open_office(base, Mortal(closed), Mortal(closed))
    for _ in range(2):
        assert (await office.ask("x")).content == "hi"
    assert len(office.opened) == 2
    assert closed == ["mortal"]


class Archive:
    """Keeps the numbers of the questions that left."""

    keeps = True

    def __init__(self) -> None:
        self.questions: list[str] = []

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        self.questions += [m.content.split()[1] for m in messages if m.role is Role.USER]


async def test_its_context_never_stops_it(base: Path) -> None:
    office = open_office(base, "context: 200\ntext: " + "word " * 20)
    archive = office.conversation.archive = Archive()
    for number in range(30):
        assert (await office.ask(f"question {number} " + "more " * 20)).ok
    assert len(office.delegate_session.messages) < 10
    assert archive.questions[:3] == ["0", "1", "2"]
    assert any(line.startswith("fast: Context full") for line in office.lines)
    too_long = await office.ask("word " * 300)
    assert too_long.content.startswith("Error: fast (gpt-5-mini) failed: The last message does")


async def test_an_empty_answer_is_none(base: Path) -> None:
    office = open_office(base, "think: hm")
    assert (await office.ask("x")).content == "Error: fast (gpt-5-mini) gave no answer."


async def test_a_cut_answer_says_so(base: Path) -> None:
    office = open_office(base, "text: one two\nfinish: length")
    assert (await office.ask("x")).content.startswith("one two\n[cut")


async def test_a_provider_elsewhere_is_asked_as_the_network_is(base: Path) -> None:
    far = "https://api.openai.com/v1"
    office = open_office(base, "text: hi", address=far, answers=[Choice.DENY, Choice.SESSION])
    assert (await office.ask("x")).content == "Error: denied by the user"
    for _ in range(2):
        assert (await office.ask("the question")).content == "hi"
    first, second = office.workshop.approver.requests
    assert (first.caller, second.preview) == ("", "the question")
    assert [str(rule) for rule in second.session] == ["allow ask_fast api.openai.com"]
    (base / "ruled").mkdir()
    for rule, expected in (("allow ask_fast *", "hi"), ("deny ask_* *", "Error: denied by rule")):
        ruled = open_office(base / "ruled", "text: hi", address=far, rules=[rule])
        assert (await ruled.ask("x")).content.startswith(expected)


async def test_a_call_is_checked_like_any_other(base: Path) -> None:
    runner = open_office(base).workshop.runner
    result = await runner.run(ToolCall("c", "ask_fast", {}))
    assert result.content == "Error: bad arguments for ask_fast: question is missing"
