"""The estimator against tokenizers that it does not know."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.estimate import (
    BYTES_PER_TOKEN,
    FRAME,
    MAX_IMAGE_TOKENS,
    MAX_PROMPTS,
    TokenEstimator,
)
from shepherd.images import Image
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.session import Session
from tests.examples import examples
from tests.pictures import picture

SAMPLES = {
    "prose": ["the quick ", "brown fox ", "jumps over. ", "cliché "],
    "code": ["def f(x):\n    ", "return x[0]\n", "{}();\n"],
    "json": ['{"a": 1, ', '"key": [12, 3], ', "}"],
    "chinese": ["漢字文", "中文字"],
    "mixed": ["привет ", "hello ", "漢", "12 "],
}
RATIO = st.floats(0.05, 1.0)  # tokens for a byte
SEEDS = st.integers(0, 2**32)


class Tokenizer:
    """So many tokens for each byte and for each message: what estimators must find out.

    `uneven`: those of one kind of text have up to a third more or fewer.
    """

    def __init__(self, ratio: float, frame: float = 4, *, uneven: bool = False) -> None:
        self.ratio, self.frame, self.uneven = ratio, frame, uneven

    def text(self, text: str) -> float:
        factor = 1.0
        if self.uneven:
            factor = 1.3 if "{" in text else 0.75 if not text.isascii() else 1.0
        return self.ratio * factor * len(text.encode())

    def messages(self, messages: list[Message]) -> float:
        return sum(self.frame + self.text(m.content) for m in messages)

    def usage(self, session: Session) -> int:
        """As a provider reports it."""
        tokens = self.frame + self.text(session.system_message) + self.messages(session.messages)
        return max(1, round(tokens))


def words(rng: random.Random, most: int = 60) -> str:
    sample = SAMPLES[rng.choice(list(SAMPLES))]
    return "".join(rng.choice(sample) for _ in range(rng.randint(most // 2, most)))


def exchange(rng: random.Random) -> list[Message]:
    return [Message.assistant(words(rng)), Message.user(words(rng))]


def talk(
    session: Session,
    tokenizer: Tokenizer,
    estimator: TokenEstimator,
    rng: random.Random,
    calls: int,
) -> Iterator[float]:
    """Calls in a row; yields the relative error of what was guessed of each one's new text."""
    for _ in range(calls):
        before = estimator.estimate(session)
        new = exchange(rng)
        for message in new:
            session.add(message)
        guess, true = estimator.estimate(session) - before, tokenizer.messages(new)
        yield abs(guess - true) / true
        estimator.learn(session, tokenizer.usage(session))


@settings(max_examples=examples(25))
@given(RATIO, SEEDS)
def test_it_follows_the_average_of_a_tokenizer(ratio: float, seed: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratio, uneven=True), Session(words(rng))
    list(talk(session, tokenizer, estimator, rng, 20))
    errors = list(talk(session, tokenizer, estimator, rng, 15))
    assert sum(errors) / len(errors) < 0.3


@settings(max_examples=examples(25))
@given(RATIO)
def test_one_usage_corrects_what_is_off_all_over(ratio: float) -> None:
    estimator = TokenEstimator()
    tokenizer, session = Tokenizer(ratio, 4 * ratio), Session("Be brief. " * 30)
    session.add(Message.user("the quick brown fox jumps. " * 20))
    estimator.learn(session, tokenizer.usage(session))
    before = estimator.estimate(session)
    new = [Message.assistant("the brown fox jumps over. " * 9), Message.user("the quick fox. " * 9)]
    for message in new:
        session.add(message)
    assert estimator.estimate(session) - before == pytest.approx(tokenizer.messages(new), rel=0.2)


def test_it_follows_a_tokenizer_that_changes() -> None:
    """The last usages count most: other languages and other kinds of text take more tokens."""
    rng, estimator = random.Random(5), TokenEstimator()
    session = Session(words(rng))
    list(talk(session, Tokenizer(0.2), estimator, rng, 30))
    other, later = Tokenizer(0.6), Session("")
    errors = list(talk(later, other, estimator, rng, 30))
    assert errors[0] > 0.5
    assert errors[-1] < 0.1


def test_a_prompt_that_is_asked_again_weighs_no_more() -> None:
    once, often = TokenEstimator(), TokenEstimator()
    rng, tokenizer = random.Random(1), Tokenizer(0.3, uneven=True)
    for _ in range(6):
        session = Session(words(rng))
        session.messages += exchange(rng)
        for estimator, times in ((once, 1), (often, 30)):
            for _ in range(times):
                estimator.learn(session, tokenizer.usage(session))
    new = Session(words(rng), exchange(rng))
    assert often.estimate(new) == once.estimate(new)


@settings(max_examples=examples(25))
@given(RATIO, SEEDS, st.sampled_from([6, 100]))
def test_a_usage_is_exact_for_all_that_it_covers(ratio: float, seed: int, most: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratio, 3), Session(words(rng))
    for _ in range(8):
        session.messages += exchange(rng)
        if len(session.messages) > most:
            del session.messages[2:4]
        usage = tokenizer.usage(session)
        estimator.learn(session, usage)
        assert estimator.estimate(session) == usage
        assert all(estimator.estimate_message(m) >= 1 for m in session.messages)
    copy = Session(session.system_message, list(session.messages))
    assert estimator.estimate(copy) == tokenizer.usage(session)


@settings(max_examples=examples(25))
@given(RATIO, SEEDS, st.data())
def test_what_stays_after_an_eviction_is_estimated(
    ratio: float, seed: int, data: st.DataObject
) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratio, 4 * ratio), Session(words(rng))
    list(talk(session, tokenizer, estimator, rng, 20))
    start = data.draw(st.integers(0, 15))
    session.messages[start : start + data.draw(st.integers(1, 15))] = []
    assert estimator.estimate(session) == pytest.approx(tokenizer.usage(session), rel=0.15)


@settings(max_examples=examples(20))
@given(RATIO, SEEDS)
def test_the_error_is_that_of_the_last_estimates(ratio: float, seed: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratio, uneven=True), Session(words(rng))
    assert estimator.error is None
    seen: list[float] = []
    for _ in range(15):
        session.messages += exchange(rng)
        usage = tokenizer.usage(session)
        seen.append(abs(estimator.estimate(session) - usage) / usage)
        estimator.learn(session, usage)
        assert estimator.error == pytest.approx(sum(seen[-10:]) / len(seen[-10:]), abs=0.02)


def test_the_sizes_of_the_last_prompts_are_remembered() -> None:
    estimator = TokenEstimator()
    sessions = [Session("Be brief.", [Message.user(f"{n}")]) for n in range(MAX_PROMPTS + 1)]
    for number, session in enumerate(sessions):
        estimator.learn(session, 50_000 + number)
    assert estimator.estimate(sessions[-1]) == 50_000 + MAX_PROMPTS
    assert estimator.estimate(sessions[1]) == 50_001
    assert estimator.estimate(sessions[0]) < 1000


def test_calls_tools_and_reasoning_count() -> None:
    estimator = TokenEstimator()
    call = ToolCall("1", "write_file", {"path": "a", "text": "word " * 100})
    plain = Session("Be brief.", [Message.user("hello")])
    sizes = [
        estimator.estimate(session)
        for session in (
            plain,
            Session("Be brief.", [Message.user("hello")], [ToolSpec("a", "Does a. " * 50)]),
            Session("Be brief.", [*plain.messages, Message.assistant("", "thinking " * 100)]),
            Session("Be brief.", [*plain.messages, Message.assistant("", "", (call,))]),
        )
    ]
    assert all(size > sizes[0] + 80 for size in sizes[1:])
    again = ToolCall("1", "write_file", {"path": "a", "text": "word " * 200})
    long, longer = (Message.assistant("", "", (c,)) for c in (call, again))
    assert estimator.estimate_message(longer) > estimator.estimate_message(long)


@settings(max_examples=examples(25))
@given(st.integers(-5, 10**9), SEEDS)
def test_one_odd_usage_does_not_spoil_the_average(usage: int, seed: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(0.25), Session(words(rng))
    for number in range(40):
        session.messages += exchange(rng)
        true = tokenizer.usage(session)
        estimator.learn(session, usage if number == 3 else true)
    new = exchange(rng)
    before = estimator.estimate(session)
    session.messages += new
    assert estimator.estimate(session) - before == pytest.approx(
        tokenizer.messages(new), rel=0.35, abs=5
    )


@given(st.text() | st.sampled_from(["\ud800", "漢字かな", "naïve", "🙂🙂", "٣٤", " \u00a0\n"]))
def test_any_text_counts_by_its_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    estimated = TokenEstimator().estimate_message(Message.user(text))
    assert abs(estimated - FRAME - size / BYTES_PER_TOKEN) <= 0.5


def test_images_count_by_their_size() -> None:
    estimator = TokenEstimator()

    def tokens(image: Image) -> int:
        message = Message.user("?", (image,))
        return estimator.estimate_message(message) - estimator.estimate_message(Message.user("?"))

    assert tokens(picture("a", 1000, 750)) == 1000
    assert tokens(picture("b", 8000, 8000)) == MAX_IMAGE_TOKENS
    assert tokens(Image("image/png", b"")) == MAX_IMAGE_TOKENS


def test_a_usage_with_images_is_exact_and_says_nothing_about_text() -> None:
    """Vendors take from 250 to 16,000 tokens for an image."""
    estimator, text = TokenEstimator(), Message.user("What is this? " * 30)
    before = estimator.estimate_message(text)
    session = Session(messages=[Message.user("What?", (picture("a", 1024, 1024),))])
    estimator.learn(session, 260)
    assert estimator.estimate(session) == 260
    assert estimator.estimate_message(text) == before
