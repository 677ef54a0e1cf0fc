"""Drafts from earlier answers."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.speculation.drafts import MATCH_LENGTHS, Draft, DraftKind
from shepherd.backends.llamacpp.speculation.earlier import EarlierAnswers
from tests.backends.llamacpp.support import EXACT, conversation, generate, loaded

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


async def test_a_request_that_is_sent_again_is_answered_in_fewer_batches() -> None:
    session = conversation("What are you?")
    async with loaded(**EXACT) as backend:
        first, again = [await generate(backend, session) for _ in range(2)]
    async with loaded(**EXACT, speculation="off") as backend:
        plain = [await generate(backend, session) for _ in range(2)]
    assert len({answer.message.content for answer in (first, again, *plain)}) == 1
    assert again.stats.accepted_tokens > first.stats.accepted_tokens
    assert again.stats.accepted_tokens > again.stats.completion_tokens * 3 // 4
    assert plain[1].stats.drafted_tokens == 0


async def test_a_draft_counts_in_which_the_answer_ends() -> None:
    session = conversation("What are you?")
    async with loaded() as backend:
        whole = await generate(backend, session)
        length = whole.stats.completion_tokens
        answers = [await generate(backend, session) for _ in range(4)]
    for stats in (answer.stats for answer in answers):
        assert stats.accepted_tokens <= stats.drafted_tokens <= length
    assert answers[-1].stats.accepted_tokens > length - 5
