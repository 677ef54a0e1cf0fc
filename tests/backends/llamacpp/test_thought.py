"""Reasoning ends at its budget, and the answer follows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.sampling.guard import ThoughtMeter, thought_budget
from shepherd.backends.output.style import THINK, ThinkMarkers
from shepherd.sampling import Sampling
from shepherd.session import ToolChoice
from tests.backends.llamacpp.support import Recorder, conversation, loaded
from tests.backends.llamacpp.tiny import BOS_TEMPLATE, write_llama

BRACKETS = ThinkMarkers("[THINK]", "[/THINK]", after=0)


def endings(pieces: list[bytes], tokens: int, tail: str = "") -> list[str]:
    """What must be written after each piece."""
    budget = thought_budget(tokens, (BRACKETS, THINK), tail)
    assert budget is not None
    meter, result = ThoughtMeter(budget), list[str]()
    for piece in pieces:
        meter.feed(piece)
        result.append(meter.ending)
    return result


@pytest.mark.parametrize(
    ("pieces", "tail", "expected"),
    [
        ([b"a", b"b", b"c"], "<think>\n", ["", "\n</think>\n\n", "\n</think>\n\n"]),
        ([b"a", b"b\n", b"c"], "<think>", ["", "</think>\n\n", "\n</think>\n\n"]),
        ([b"<think>", b"a", b"b"], "", ["", "", "\n</think>\n\n"]),
        ([b"\n[TH", b"INK]", b"a", b"b"], "", ["", "", "", "\n[/THINK]"]),
        ([b"a", b"</th", b"ink>", b"x", b"y"], "<think>", ["", "", "", "", ""]),
        ([b"a", b"</think", b">\n\n", b"x", b"y"], "<think>", ["", "", "", "", ""]),
        ([b"a</think>\n\nYes", b"x", b"y"], "<think>", ["", "", ""]),
        ([b"a", b"b</", b"div>"], "<think>", ["", "", "\n</think>\n\n"]),
        ([b"Hello", b"<think>", b"a", b"b", b"c"], "", [""] * 5),
        ([b"\xe2", b"\x80", b"\x9c"], "<think>", ["", "\n</think>\n\n", "\n</think>\n\n"]),
    ],
)
def test_reasoning_ends_after_two_tokens(
    pieces: list[bytes], tail: str, expected: list[str]
) -> None:
    assert endings(pieces, 2, tail) == expected


def test_there_is_no_limit_without_a_budget_or_markers() -> None:
    assert thought_budget(None, (THINK,), "<think>") is None
    assert thought_budget(5, (), "") is None


@given(st.lists(st.binary(min_size=1, max_size=6), max_size=30), st.integers(0, 20))
def test_nothing_is_forced_before_the_budget(pieces: list[bytes], tokens: int) -> None:
    for place, ending in enumerate(endings(pieces, tokens, "<think>\n"), start=1):
        assert not ending or place >= tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("jump", [True, False])
async def test_pup_stops_to_think_and_answers(temperature: float, *, jump: bool) -> None:
    async with loaded(jump_ahead=jump) as backend:
        session = conversation("List the files in src", tools=True)
        session.thinking = True
        session.sampling = Sampling(temperature=temperature, seed=1)
        free = await backend.generate_from_session(session, Recorder())
        session.thinking_budget = 3
        short = await backend.generate_from_session(session, Recorder())
        assert len(free.message.reasoning) > len(short.message.reasoning) > 0
        assert len(short.message.reasoning) < 40
        assert short.message.content or short.message.tool_calls


BEGINS_ALWAYS = BOS_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")


async def test_a_budget_of_none_gives_no_token_of_reasoning(tmp_path: Path) -> None:
    async with loaded() as backend:
        session = conversation("List the files in src", tools=True)
        session.thinking, session.thinking_budget = True, 0
        generation = await backend.generate_from_session(session, Recorder())
        assert generation.message.reasoning == ""
        assert [call.name for call in generation.message.tool_calls] == ["list_directory"]
    async with loaded(write_llama(tmp_path / "begins.gguf", template=BEGINS_ALWAYS)) as backend:
        session = conversation("hello")
        session.thinking, session.thinking_budget = True, 2
        generation = await backend.generate_from_session(session, Recorder(), max_tokens=8)
        assert generation.message.reasoning
        counted = await backend.count_session_tokens(session)
        session.thinking_budget = 0
        generation = await backend.generate_from_session(session, Recorder(), max_tokens=8)
        assert generation.message.reasoning == ""
        assert generation.stats.prompt_tokens == await backend.count_session_tokens(session)
        assert generation.stats.prompt_tokens > counted


def test_reasoning_that_an_answer_begins_is_ended_at_once() -> None:
    assert endings([b"<think>"], 0) == ["\n</think>\n\n"]


async def test_a_required_call_follows_the_end_of_thought() -> None:
    async with loaded() as backend:
        session = conversation("Good morning!", tools=True)
        session.thinking, session.thinking_budget = True, 3
        session.tool_choice = ToolChoice("list_directory")
        generation = await backend.generate_from_session(session, Recorder())
        assert [call.name for call in generation.message.tool_calls] == ["list_directory"]
        assert len(generation.message.reasoning) < 40
