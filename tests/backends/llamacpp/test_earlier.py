"""Drafts from earlier answers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.base import Generation
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.scheduling.drafts import (
    MATCH_LENGTHS,
    Draft,
    DraftKind,
    EarlierAnswers,
)
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.sampling import Sampling
from tests.backends.llamacpp.floor import Floor
from tests.backends.llamacpp.support import (
    PUP,
    conversation,
    generate,
    loaded,
    settings,
)

SIZE = MATCH_LENGTHS[DraftKind.EARLIER]
END = 99
PROMPT = list(range(20, 30))
ANSWER = list(range(40, 52))


def draft(tokens: list[int]) -> Draft:
    return Draft(tokens, DraftKind.EARLIER)


def test_the_same_prompt_gets_the_earlier_answer_with_its_end() -> None:
    earlier = EarlierAnswers()
    earlier.add([*PROMPT, *ANSWER], len(PROMPT), END)
    assert earlier.look_up(PROMPT, 4) == draft(ANSWER[:4])
    assert earlier.look_up([*PROMPT, *ANSWER[:10]], 16) == draft([*ANSWER[10:], END])


def test_the_newest_answer_counts() -> None:
    earlier = EarlierAnswers()
    for answer in (ANSWER, ANSWER[::-1]):
        earlier.add([*PROMPT, *answer], len(PROMPT), END)
    assert earlier.look_up(PROMPT, 3) == draft(ANSWER[::-1][:3])


def test_an_answer_that_was_cut_is_not_ended_by_its_draft() -> None:
    earlier = EarlierAnswers()
    earlier.add([*PROMPT, *ANSWER], len(PROMPT), -1)
    assert earlier.look_up([*PROMPT, *ANSWER], 16) == draft([-1])


def test_other_texts_and_empty_answers_give_nothing() -> None:
    earlier = EarlierAnswers()
    earlier.add(PROMPT, len(PROMPT), END)
    assert earlier.look_up(PROMPT, 4) is None
    earlier.add([*PROMPT, *ANSWER], len(PROMPT), END)
    assert earlier.look_up([*PROMPT[:-1], 5], 4) is None


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=30), max_size=30))
def test_the_memory_is_bounded_and_the_newest_answer_stays(answers: list[list[int]]) -> None:
    earlier = EarlierAnswers(max_tokens=100)
    for number, answer in enumerate(answers):
        prompt = [100 + number] * SIZE
        earlier.add([*prompt, *answer], len(prompt), END)
        assert earlier.look_up(prompt, 30) == draft([*answer, END][:30])
        assert len(earlier) <= 100


@asynccontextmanager
async def pup(**values: object) -> AsyncGenerator[LlamaCppBackend]:
    """The built-in model as it comes: its file asks for temperature 0, and nobody else does."""
    backend = await LlamaCppBackend.load(PUP, settings(**values))
    try:
        yield backend
    finally:
        await backend.aclose()


async def repeated(
    backend: LlamaCppBackend, times: int, sampling: Sampling | None = None
) -> list[Generation]:
    """The answers to the same request, one after the other."""
    session = conversation("What are you?")
    session.sampling = sampling or Sampling()
    return [await generate(backend, session) for _ in range(times)]


def repeats_an_earlier_answer(answer: Generation) -> bool:
    """Whether most of it was drafted. A few tokens may be, from its own text."""
    return 2 * answer.stats.accepted_tokens > answer.stats.completion_tokens


def test_a_request_that_is_sent_again_is_answered_in_fewer_batches() -> None:
    floor, plain = Floor(PUP, 1, ahead=True), Floor(PUP, 1)
    jobs = [answered(floor) for _ in range(4)]
    batches = [len(floor.context.batches)]
    jobs.append(answered(floor))
    batches.append(len(floor.context.batches))
    once = answered(plain)
    assert {tuple(job.tokens) for job in jobs} == {tuple(once.tokens)}
    assert all(job.accepted_tokens <= job.drafted_tokens <= job.generated for job in jobs)
    assert jobs[-1].accepted_tokens > once.generated - 5  # also of the draft in which it ends
    assert batches[1] - batches[0] < len(plain.context.batches) / 2
    assert once.drafted_tokens == 0
    floor.close()
    plain.close()


def answered(floor: Floor) -> Job:
    """The same request again, to its end; every draft is used, however fast the machine is."""
    tokens = floor.model.vocab.tokenize(
        "<|im_start|>user\nWhat are you?<|im_end|>\n<|im_start|>assistant\n", parse_special=True
    )
    job = Job(len(tokens), tokens, Sampling(temperature=0.0), lambda update: None)
    floor.scheduler.queue.submit(job)
    floor.scheduler.start(job, 100)
    floor.run()
    return job


@pytest.mark.parametrize("asked", [Sampling(temperature=0.0), Sampling(seed=5), Sampling(top_k=1)])
async def test_other_requests_change_no_batch_of_an_answer_that_should_repeat(
    asked: Sampling,
) -> None:
    async with pup() as backend:
        answers = [*await repeated(backend, 1), *await repeated(backend, 2, asked)]
    assert not any(repeats_an_earlier_answer(answer) for answer in answers)


async def test_settings_ask_for_answers_that_repeat_as_requests_do() -> None:
    async with loaded() as backend:  # with temperature 0
        answers = await repeated(backend, 2)
    assert not any(repeats_an_earlier_answer(answer) for answer in answers)


async def test_deterministic_answers_are_drafted_from_others() -> None:
    async with pup(deterministic=True) as backend:
        answers = await repeated(backend, 3, Sampling(temperature=0.0))
    assert answers[-1].stats.accepted_tokens > 0
    assert len({answer.message.content for answer in answers}) == 1
