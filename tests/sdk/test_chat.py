"""Conversations opened from Python, with a script as the model."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shepherd
from tests.patience import PATIENCE
from tests.pictures import png

Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes the name of a model from a script."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        path = tmp_path / "script.txt"
        path.write_text(text)
        return f"script:{path}"

    return write


def place(city: str) -> str:
    """The country of a city."""
    return f"{city} is in Italy"


PLACE = shepherd.tool(place)
CALL = 'think: hm\ntext: Let me see.\ncall: place {"city": "Rome"}\n---\ntext: Italy.\n'


async def test_events_come_in_order_and_the_end_has_all(script: Script) -> None:
    async with shepherd.open(model=script(CALL), tools=[PLACE], approve=slow_yes) as conversation:
        events = [e async for e in conversation.ask("Where is Rome?")]
    kinds = [type(e).__name__ for e in events if not isinstance(e, shepherd.Stats)]
    assert kinds == ["Thinking", "Text", "ToolCall", "ToolResult", "Text", "End"]
    call, result = events[kinds.index("ToolCall") + 1], events[-4]
    assert isinstance(call, shepherd.ToolCall)
    assert isinstance(result, shepherd.ToolResult)
    assert (call.arguments, result.id) == ({"city": "Rome"}, call.id)
    assert result.ok
    assert result.text == "Rome is in Italy"
    end = events[-1]
    assert isinstance(end, shepherd.End)
    answer = end.answer
    assert (str(answer), answer.thinking, answer.reason) == ("Italy.", "", "stop")
    assert [c.name for c in answer.tool_calls] == ["place"]
    assert len(answer.stats) == 2


def no(_request: shepherd.ApprovalRequest) -> bool:
    return False


async def slow_yes(_request: shepherd.ApprovalRequest) -> bool:
    await asyncio.sleep(0)
    return True


def defect(_request: shepherd.ApprovalRequest) -> bool:
    raise KeyError("defect")


def answering(value: Any) -> Callable[[shepherd.ApprovalRequest], Any]:
    return lambda _request: value


def feedback(_request: shepherd.ApprovalRequest) -> shepherd.Approval:
    return shepherd.Approval(shepherd.Choice.DENY, feedback="not Rome")


@pytest.mark.parametrize(
    ("approve", "text"),
    [
        (None, "no approve callback"),
        (no, "denied by the approve callback"),
        (answering("no"), "denied by the approve callback"),
        (answering(1), "denied by the approve callback"),
        (answering("yes"), "denied by the approve callback"),
        (defect, "Error: "),
        (feedback, "not Rome"),
        (slow_yes, "Rome is in Italy"),
        (answering(shepherd.Choice.ONCE), "Rome is in Italy"),
        (answering(shepherd.Choice.DENY), "denied"),
    ],
)
async def test_only_a_clear_yes_runs_a_tool(approve: Any, text: str, script: Script) -> None:
    options: Any = {} if approve is None else {"approve": approve}
    async with shepherd.open(model=script(CALL), tools=[PLACE], **options) as conversation:
        events = [e async for e in conversation.ask("Where is Rome?")]
    (result,) = (e for e in events if isinstance(e, shepherd.ToolResult))
    assert text in result.text
    assert result.ok == (text == "Rome is in Italy")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": ["read_fil"]}, "did you mean read_file"),
        ({"tools": [PLACE, PLACE]}, "Two tools are named place"),
        ({"settings": {"model.nam": "x"}}, "model.nam"),
        ({"directory": "/nowhere"}, "not a directory"),
        ({"session": "abc123"}, "abc123"),
        ({"provider": "nobody"}, "nobody"),
        ({"provider": {"type": "telex"}}, "telex"),
        ({"model": "script:/nowhere"}, "/nowhere"),
    ],
)
async def test_a_wrong_option_is_told(options: Any, text: str, script: Script) -> None:
    chosen = {"model": script("text: a\n")} | options
    if "provider" in options:
        del chosen["model"]
    with pytest.raises(shepherd.ShepherdError, match=text):
        async with shepherd.open(**chosen):
            pass


async def offered(model: str, **options: Any) -> list[str]:
    async with shepherd.open(model=model, **options) as conversation:
        return conversation.tools


async def test_the_tools_are_those_that_were_chosen(script: Script) -> None:
    model = script("text: a\n")
    assert await offered(model, tools=["read_file", PLACE]) == ["read_file", "place"]
    assert await offered(model, tools=[]) == []
    assert "execute_command" in await offered(model)


async def test_a_model_with_basic_tools_is_not_offered_others(script: Script) -> None:
    async with shepherd.open(model="pup", tools=["get_date", PLACE]) as conversation:
        events = [e async for e in conversation.ask("Hello!")]
        tools = conversation.tools
    assert tools == ["get_date"]
    notices = [e.text for e in events if isinstance(e, shepherd.Notice)]
    assert notices == ["pup was trained on certain tools only; not offered: place"]


async def test_a_second_prompt_has_to_wait(script: Script) -> None:
    async with shepherd.open(model=script("text: a\ndelay: 30\ntext: b\n")) as conversation:
        first = conversation.ask("one")
        await anext(first)
        with pytest.raises(shepherd.ShepherdError, match="another prompt"):
            await conversation.answer("two")
        first.cancel()
        assert [type(e) async for e in first][-1] is shepherd.End


async def test_leaving_the_loop_cancels_the_turn(script: Script) -> None:
    model = script("text: a\ndelay: 30\ntext: b\n---\ntext: c\n")
    async with asyncio.timeout(PATIENCE), shepherd.open(model=model) as conversation:
        async for _ in conversation.ask("one"):
            break
        assert (await conversation.answer("two")).text == "c"
        assert [m.content for m in conversation.messages] == ["one", "a", "two", "c"]


async def test_cancelling_the_reader_cancels_the_turn(script: Script) -> None:
    model = script("text: a\ndelay: 30\ntext: b\n---\ntext: c\n")
    async with shepherd.open(model=model) as conversation:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(conversation.answer("one"), 0.2)
        assert (await conversation.answer("two")).text == "c"


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_a_cancelled_turn_ends_as_cancelled(moment: str, script: Script) -> None:
    async with shepherd.open(model=script("text: a\ndelay: 30\ntext: b\n")) as conversation:
        turn = conversation.ask("one")
        if moment == "before":
            turn.cancel()
        else:
            await anext(turn)
            conversation.cancel()
        *_, end = [e async for e in turn]
    assert isinstance(end, shepherd.End)
    assert end.answer.reason is shepherd.FinishReason.CANCELLED
    assert end.answer.text == ("" if moment == "before" else "a")


async def test_own_commands_and_jobs(script: Script) -> None:
    start = 'call: execute_command {"command": "sleep 3600", "background": true}\n---\ntext: x'
    async with shepherd.open(model=script(start), approve=lambda _: True) as conversation:
        done = await conversation.run_command("echo for-$((40 + 2)); exit 3")
        assert (done.output, done.ok, done.end) == ("for-42", False, "ended with exit code 3")
        await conversation.run_command("echo mine", shared=False)
        await conversation.answer("start")
        result = conversation.messages[2]
        assert (result.name, result.content) == ("execute_command", "for-42\n[exit code 3]")
        assert all("mine" not in message.content for message in conversation.messages)
        [job] = conversation.jobs
        assert job.is_running
        await conversation.end_job(job.id)
        assert job.state.startswith("killed")
        conversation.approve_mode = "none"
        with pytest.raises(shepherd.InvalidRequestError, match="approval mode is none"):
            await conversation.run_command("echo x")


async def test_closing_ends_a_turn_that_runs(script: Script) -> None:
    async with asyncio.timeout(PATIENCE):
        async with shepherd.open(model=script("text: a\ndelay: 30\n")) as conversation:
            turn = conversation.ask("one")
            await anext(turn)
        assert [type(e) async for e in turn][-1] is shepherd.End


async def test_an_error_of_the_model_is_raised_and_the_conversation_goes_on(script: Script) -> None:
    model = script("text: a\nerror: the upstream is gone\n---\ntext: c\n")
    async with shepherd.open(model=model) as conversation:
        with pytest.raises(shepherd.BackendError, match="upstream is gone"):
            await conversation.answer("one")
        assert (await conversation.answer("two")).text == "c"


async def test_a_turn_that_is_stopped_says_why(script: Script) -> None:
    settings = {"model.max_rounds": 1}
    model = script('call: place {"city": "Rome"}\n')
    async with shepherd.open(model=model, settings=settings) as conversation:
        answer = await conversation.answer("one")
    assert answer.reason is shepherd.FinishReason.ERROR
    assert "1 rounds" in answer.problem


async def test_saved_sessions_are_resumed(script: Script) -> None:
    model = script("text: a\n")
    async with shepherd.open(model=model, save=True) as conversation:
        await conversation.answer("one")
        number, messages = conversation.id, conversation.messages
    for session in (number, "latest"):
        async with shepherd.open(model=model, session=session) as conversation:
            assert (conversation.id, conversation.messages) == (number, messages)


async def test_nothing_is_saved_unless_it_is_wanted(script: Script, tmp_path: Path) -> None:
    async with shepherd.open(model=script("text: a\n")) as conversation:
        await conversation.answer("one")
    assert [p for p in (tmp_path / "home").rglob("*") if p.is_file()] == []


async def test_images_go_along(script: Script, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    images = [str(tmp_path / "a.png"), tmp_path / "a.png", png()]
    async with shepherd.open(model=script("text: a\n")) as conversation:
        await conversation.answer("What is this?", images=images)
        assert len(conversation.messages[0].images) == 3
        with pytest.raises(shepherd.ImageError):
            conversation.ask("And this?", images=[b"text"])


def test_asking_without_an_event_loop(script: Script) -> None:
    assert str(shepherd.ask("one", model=script("text: a\n"))) == "a"


async def test_asking_within_an_event_loop_is_an_error(script: Script) -> None:
    with pytest.raises(shepherd.ShepherdError, match=r"shepherd\.open"):
        shepherd.ask("one", model=script("text: a\n"))


async def test_two_conversations_at_once(script: Script) -> None:
    async with (
        shepherd.open(model=script("text: a\n")) as one,
        shepherd.open(model=script("text: a\n")) as two,
    ):
        answers = await asyncio.gather(one.answer("x"), two.answer("x"))
    assert [a.text for a in answers] == ["a", "a"]


async def test_a_message_steers_the_turn_and_plan_mode_holds(script: Script) -> None:
    def place(city: str) -> str:
        """The country of a city."""
        conversation.steer("and Paris?")
        return city

    tools = [shepherd.tool(place), "write_file"]
    write = 'call: write_file {"path": "new", "content": "x"}'
    text = f'call: place {{"city": "Rome"}}\n---\n{write}\n---\ntext: done'
    async with shepherd.open(model=script(text), tools=tools, approve=slow_yes) as conversation:
        conversation.approve_mode = "plan"
        await conversation.answer("Where is Rome?")
        assert conversation.approve_mode == "plan"
        users = [m.content for m in conversation.messages if m.role == "user"]
        assert users[0].startswith("Where is Rome?\n\n<note>\nPlan mode is on")
        assert users[1:] == ["and Paris?"]
        results = [m.content for m in conversation.messages if m.role == "tool"]
        assert "plan mode" in results[1]


async def test_a_conversation_lives_as_long_as_its_chat(script: Script) -> None:
    chat = await shepherd.open(model=script("text: one\n---\ntext: two\n")).__aenter__()
    gc.collect()
    await asyncio.sleep(0)  # a context that is gone is closed by the event loop
    for text in ("one", "two"):
        answer = await chat.answer("hi")
        assert (answer.text, answer.reason) == (text, shepherd.FinishReason.STOP)
    await chat.aclose()
