"""Calls that a model makes by itself: held to their schemas, and nothing else is."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.base import Generation
from shepherd.backends.inprocess.constraint import Constraint
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.backend import REWOUND
from shepherd.backends.llamacpp.sampling.guard import CallDetector
from shepherd.backends.output.style import ThinkMarkers
from shepherd.events import FinishReason
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import Recorder, conversation, loaded
from tests.backends.llamacpp.test_tool_choice import NOW, WRITE, check_write
from tests.examples import few

MARKER = "<tool_call>"
OFFERED = re.compile(r'^<tool_call>\n\{"name": "(write_file|now)"', re.MULTILINE)


def watched(pieces: list[bytes], *, reasoning: bool = False) -> str | None:
    watch = CallDetector(Constraint("", trigger=MARKER, reasoning=reasoning))
    for piece in pieces:
        rest = watch.feed(piece)
        if rest is not None:
            return rest
    return None


@pytest.mark.parametrize(
    ("text", "reasoning", "found"),
    [
        ("<tool_call>", False, True),
        ("\n  <tool_call>", False, True),
        ("Sure, é:\n\n<tool_call>", False, True),
        ("Write `<tool_call>` for it", False, False),
        ("So: <tool_call>", False, False),
        ("```xml\n<tool_call>\n```", False, False),
        ("```xml\n<b>\n```\n<tool_call>", False, True),
        ("<think>\n<tool_call>", False, False),
        ("<think>\nhm\n</think>\n\n<tool_call>", False, True),
        ("<tool_call>", True, False),
        ("hm\n</think>\n<tool_call>", True, True),
        ("a < b, <tool_cal", False, False),
    ],
)
def test_a_call_begins_at_the_start_of_a_line(text: str, found: bool, reasoning: bool) -> None:  # noqa: FBT001 - parameters of the test
    data = text.encode()
    assert (watched([data], reasoning=reasoning) is not None) is found
    single = [data[i : i + 1] for i in range(len(data))]
    assert (watched(single, reasoning=reasoning) is not None) is found


@pytest.mark.parametrize(
    ("call_text", "text", "names_unknown_tool"),
    [
        ("", "\n", False),
        ("", "{", False),
        ('\n{"name": "', "wri", False),
        ('\n{"name": "', "rea", True),
        ('\n{"name": ', '"rea', True),
        ('\n{"name": "wri', 'te", ', False),
        ('\n{"name": "wri', 'te_all", ', True),
        ('\n{"name": "write', '":', False),
        ('\n{"name": "write", "arguments": {"a": ', "rea", False),
    ],
)
def test_the_tool_is_the_models_own_choice(
    call_text: str,
    text: str,
    names_unknown_tool: bool,  # noqa: FBT001 - parameters of the test
) -> None:
    opening, names = '\n{"name": "', ("write", "list")
    watch = CallDetector(Constraint("", trigger=MARKER, opening=opening, names=names))
    watch.feed(MARKER.encode())
    watch.follow(call_text)
    assert watch.names_unknown_tool(text) is names_unknown_tool


def test_calls_may_follow_each_other_at_once_and_reasoning_has_tags_of_the_model() -> None:
    thought = ThinkMarkers("<mm:think>", "</mm:think>")
    watch = CallDetector(Constraint("", trigger=MARKER, thoughts=(thought,)))
    assert watch.feed(f"<mm:think>{MARKER}".encode()) is None
    assert watch.feed(b"\n</mm:think>\n") is None
    assert watch.feed(MARKER.encode()) == ""
    watch.end_call()
    assert watch.feed(MARKER.encode()) == ""


@given(st.text("<tool_ca>l`~\n think/é"), st.text("\n{a"))
def test_what_is_behind_the_marker_is_given_back(before: str, rest: str) -> None:
    text = f"{before}\n{MARKER}"
    first = watched([text.encode()])
    assert first in (None, "") or (MARKER in before and first is not None)
    if first == "":
        assert watched([text.encode() + rest.encode()]) == rest


async def wild_answers(backend: LlamaCppBackend) -> list[Generation]:
    """What Pup writes when it is asked for a call and samples far too freely."""
    answers: list[Generation] = []
    for seed in range(few(40, 8)):
        session = conversation("Write hello to a.txt")
        session.tools = [WRITE, NOW]
        session.sampling = Sampling(temperature=1.8, seed=seed, top_k=0, top_p=1.0)
        answers.append(await backend.generate_from_session(session, Recorder(), 120))
    return [g for g in answers if g.finish_reason is not FinishReason.LENGTH]


async def test_every_call_of_a_tool_on_offer_fits_its_schema() -> None:
    async with loaded() as backend:
        checked = await wild_answers(backend)
    async with loaded(check_calls=False) as backend:
        unchecked = await wild_answers(backend)
    calls = [call for g in checked for call in g.message.tool_calls]
    assert len(calls) > few(5, 1)
    for call in calls:
        if call.name == "write_file":
            check_write(call.arguments)
    assert not any(OFFERED.search(g.message.content) for g in checked)
    assert any(OFFERED.search(g.message.content) for g in unchecked)


LOOSE = Sampling(temperature=2.0, top_k=0, top_p=1.0)


async def lost_turns(backend: LlamaCppBackend) -> tuple[int, int]:
    """In how many answers of an astray model a call is lost, and how many were written again."""
    lost = again = 0
    for seed in range(few(60, 12)):
        session = conversation("Write hello to a.txt, then list the files", tools=True)
        session.sampling = replace(LOOSE, seed=seed)
        recorder = Recorder()
        generation = await backend.generate_from_session(session, recorder, 200)
        lost += bool(generation.problems) and not generation.message.tool_calls
        again += any(text == REWOUND for _, text, _ in recorder.events)
    return lost, again


async def test_no_turn_is_lost_to_a_broken_call() -> None:
    async with loaded(check_calls=False) as backend:
        lost, again = await lost_turns(backend)
        assert lost > 0
        assert again == 0
    async with loaded() as backend:
        lost, again = await lost_turns(backend)
        assert lost == 0
        assert again > 0


async def test_pup_answers_alike_with_and_without() -> None:
    prompts = ["Hello!", "List the files in src", "What can you do?", "Read a.txt and b.txt"]
    answers: list[list[tuple[str, str]]] = []
    for checked in (True, False):
        async with loaded(check_calls=checked) as backend:
            told: list[tuple[str, str]] = []
            for prompt in prompts:
                generation = await backend.generate_from_session(
                    conversation(prompt, tools=True), Recorder()
                )
                calls = [(c.name, c.arguments) for c in generation.message.tool_calls]
                told.append((generation.message.content, json.dumps(calls)))
            answers.append(told)
    assert answers[0] == answers[1]
