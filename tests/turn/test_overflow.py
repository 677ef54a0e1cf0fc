"""Full contexts behind an API: counts are guesses, and errors say much, little or nothing."""

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.backends.base import Generation, Prefilled
from shepherd.config.llamacpp import MIN_CONTEXT
from shepherd.errors import ContextFullError
from shepherd.events import (
    CallbackEvent,
    Event,
    EventCallback,
    FinishReason,
    Text,
    Topic,
)
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.examples import examples
from tests.flat_events import flat
from tests.turn.guessing import OUTPUT_TOKENS, STYLES, Guessing, Reader, assert_valid

MAX_ROUNDS = 12
"""Requests for one answer at most: what goes doubles with each."""


Answer = Callable[[Session], Message]


def notices(kept: list[str]) -> EventCallback:
    def callback(event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if (kind, name) == (CallbackEvent.SYSTEM, Topic.EVICTION):
            kept.append(content)
        return True

    return callback


def min_tokens(backend: Guessing, session: Session, prompt: str) -> int:
    """The true tokens of what may never go: the last user message and the newest group."""
    prompts = [m for m in session.messages if m.content == prompt]
    if not prompts:
        return backend.true_tokens(session, [Message.user(prompt)])
    behind = session.messages[session.messages.index(prompts[0]) + 1 :]
    newest = max((i for i, m in enumerate(behind) if m.role is Role.ASSISTANT), default=0)
    return backend.true_tokens(session, [*prompts, *behind[newest:]])


def talker(rng: random.Random, words: int) -> Answer:
    """Answers at random: with text, or with one or two calls; never more than three in a turn."""

    def answer(session: Session) -> Message:
        text = "word " * rng.randint(0, words) + "."
        last = max(i for i, m in enumerate(session.messages) if m.role is Role.USER)
        rounds = sum(bool(m.tool_calls) for m in session.messages[last:])
        if rounds == 3 or rng.random() < 0.5:
            return Message.assistant(text)
        calls = [
            ToolCall(f"call_{rng.getrandbits(40)}", "read_file", {"path": str(rng.random())})
            for _ in range(rng.randint(1, 2))
        ]
        return Message.assistant(text, tool_calls=tuple(calls))

    return answer


@settings(max_examples=examples(120))
@given(
    seed=st.integers(0, 2**32),
    style=st.sampled_from(list(STYLES)),
    ratio=st.floats(-1, 0.7).map(lambda exponent: 10**exponent),
    limit=st.integers(MIN_CONTEXT, 3000),
    knows=st.sets(st.sampled_from(["limit", "usage of overflows"])),
)
@example(39, "exact", 10**0.5, 256, {"usage of overflows", "limit"})
async def test_every_turn_gets_through_or_can_not(
    seed: int, style: str, ratio: float, limit: int, knows: set[str]
) -> None:
    """Whatever the tokenizer: no loop, no half groups, no error where an answer was possible.

    In contexts that can be set; below, a first guess that is far too low may give up too early.
    """
    rng = random.Random(seed)
    backend = Guessing(
        limit, ratio, style, talker(rng, 40), "limit" in knows, "usage of overflows" in knows
    )
    session = Session("Be brief.")
    for number in range(12):
        prompt = f"{number}: " + "ask " * rng.choice([1, 5, 20, 100])
        before, kept = backend.requests, list[str]()
        try:
            outcome = await run_turn(session, prompt, backend, Reader(120), notices(kept))
        except ContextFullError:
            assert min_tokens(backend, session, prompt) + OUTPUT_TOKENS > limit
        else:
            assert outcome.finish_reason is FinishReason.STOP
            assert session.messages[-1].role is Role.ASSISTANT
            assert backend.requests - before <= MAX_ROUNDS * len(outcome.stats)
        if session.messages:
            assert_valid(session)


@pytest.mark.parametrize("style", list(STYLES))
async def test_nothing_leaves_before_it_must_where_the_size_is_unknown(style: str) -> None:
    backend = Guessing(3000, 0.25, style, lambda _: Message.assistant("yes"), knows_limit=False)
    session, kept = Session(), list[str]()
    for _ in range(20):
        await run_turn(session, "word " * 60, backend, Reader(0), notices(kept))
    assert (len(session.messages), kept) == (40, [])
    for _ in range(40):
        await run_turn(session, "word " * 60, backend, Reader(0), notices(kept))
    assert kept
    assert 8 <= len(session.messages) < 80


async def test_with_a_known_size_the_upstream_never_has_to_refuse() -> None:
    backend = Guessing(2000, 0.4, "nothing", lambda _: Message.assistant("word " * 40))
    session, kept = Session(), list[str]()
    for _ in range(60):
        await run_turn(session, "word " * 30, backend, Reader(0), notices(kept))
    assert backend.overflows == 0
    assert kept
    assert backend.true_tokens(session, session.messages) > 1000


@pytest.mark.parametrize("known", ["limit", "nothing"])
@pytest.mark.parametrize("style", ["exact", "with the answer"])
async def test_a_prompt_that_can_never_fit_costs_nothing_where_numbers_say_so(
    style: str, known: str
) -> None:
    backend = Guessing(1000, 0.3, style, lambda _: Message.assistant("yes"), known == "limit")
    session, kept = Session(), list[str]()
    for _ in range(5):
        await run_turn(session, "hello", backend, Reader(0), notices(kept))
    before = list(session.messages)
    with pytest.raises(ContextFullError, match="does not fit"):
        await run_turn(session, "word " * 5000, backend, Reader(0), notices(kept))
    assert (session.messages, kept) == (before, [])


class Chatty(Guessing):
    """Says something before it finds out."""

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        callback(Text("Well, "))
        raise ContextFullError("full", 10)


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    backend = Chatty(1000, 0.3, "exact", lambda _: Message.assistant("yes"))
    session = Session(messages=[Message.user("hello"), Message.assistant("hi")] * 3)
    texts: list[str] = []

    def callback(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        texts.append(content if kind is CallbackEvent.CONTENT else "")
        return True

    with pytest.raises(ContextFullError, match="full"):
        await run_turn(session, "more", backend, Reader(0), callback)
    assert texts.count("Well, ") == 1
    assert len(session.messages) == 7


async def test_where_the_size_is_unknown_no_result_is_cut_or_measured() -> None:
    calls = iter([(ToolCall("1", "read_file", {}),), ()])
    backend = Guessing(
        10**6, 0.3, "exact", lambda _: Message.assistant("", "", next(calls)), knows_limit=False
    )
    session = Session()
    await run_turn(session, "read", backend, Reader(50_000), notices([]))
    assert len(session.messages[2].content) == 50_000
    assert backend.counted == 0
