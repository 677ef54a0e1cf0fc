"""The estimator against tokenizers that it does not know."""

import random
import re
from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.estimate import FamilyPrior, ImageRule, TokenEstimator, prior_for
from shepherd.backends.api.estimate.estimator import MAX_PARTS, MAX_PROMPTS
from shepherd.backends.api.estimate.features import KINDS, count_kinds
from shepherd.backends.api.estimate.ratios import Ratios, solve
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.session import Session
from tests.examples import examples

CLASSES = [r"[A-Za-z\u00c0-\u024f]", r"[0-9]", r"\s", r"[\u4e00-\u9fff]", r"[\u0400-\u04ff]"]
SAMPLES = {
    "prose": ["the quick ", "brown fox ", "jumps over. ", "cliché "],
    "code": ["def f(x):\n    ", "return x[0]\n", "{}();\n"],
    "json": ['{"a": 1, ', '"key": [12, 3], ', "}"],
    "chinese": ["漢字文", "中文字"],
    "mixed": ["привет ", "hello ", "漢", "12 "],
    "numbers": ["1234 ", "99.5, "],
}
RATIO = st.floats(-0.7, 0.9).map(lambda exponent: 10**exponent)  # 0.2 to 8 tokens a character
SEEDS = st.integers(0, 2**32)


@lru_cache(maxsize=4096)
def class_counts(text: str) -> list[int]:
    """How many characters of each class a text has, and last those of no class."""
    counts = [len(re.findall(c, text)) for c in CLASSES]
    return [*counts, len(text) - sum(counts)]


class Tokenizer:
    """So many tokens per character of each class and per message: what estimators must find out."""

    def __init__(self, ratios: list[float], frame: float) -> None:
        self.ratios, self.frame = ratios, frame

    def text(self, text: str) -> float:
        return sum(n * r for n, r in zip(class_counts(text), self.ratios, strict=True))

    def messages(self, messages: list[Message]) -> float:
        return sum(self.frame + self.text(m.content) for m in messages)

    def usage(self, session: Session) -> int:
        """As a provider reports it."""
        tokens = self.frame + self.text(session.system_message) + self.messages(session.messages)
        return max(1, round(tokens))


def words(rng: random.Random, most: int = 60) -> str:
    sample = SAMPLES[rng.choice(list(SAMPLES))]
    return "".join(rng.choice(sample) for _ in range(rng.randint(1, most)))


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


def error_after_twenty_calls(seed: int) -> float:
    """The mean relative error in the next 15 calls, of a tokenizer made from the seed."""
    rng, estimator = random.Random(seed), TokenEstimator()
    ratios = [10 ** rng.uniform(-0.7, 0.9) for _ in range(6)]
    tokenizer, session = Tokenizer(ratios, rng.uniform(0, 15)), Session(words(rng))
    list(talk(session, tokenizer, estimator, rng, 20))
    errors = list(talk(session, tokenizer, estimator, rng, 15))
    return sum(errors) / len(errors)


def test_it_finds_tokenizers_within_twenty_calls() -> None:
    """Not every one: where a kind of character has hardly come yet, its ratio is still a guess."""
    errors = sorted(error_after_twenty_calls(seed) for seed in range(40))
    assert sum(errors) / len(errors) < 0.02
    assert errors[35] < 0.05
    assert errors[-1] < 0.2


@settings(max_examples=examples(25))
@given(RATIO)
def test_one_usage_corrects_what_is_off_all_over(ratio: float) -> None:
    estimator = TokenEstimator()
    tokenizer, session = Tokenizer([ratio] * 6, 4 * ratio), Session("Be brief. " * 30)
    session.add(Message.user("the quick brown fox jumps. " * 20))
    estimator.learn(session, tokenizer.usage(session))
    before = estimator.estimate(session)
    new = [Message.assistant("the brown fox jumps over. " * 9), Message.user("the quick fox. " * 9)]
    for message in new:
        session.add(message)
    assert estimator.estimate(session) - before == pytest.approx(tokenizer.messages(new), rel=0.2)


def test_a_prompt_that_is_asked_again_weighs_no_more() -> None:
    once, often = TokenEstimator(), TokenEstimator()
    rng, tokenizer = random.Random(1), Tokenizer([0.2, 0.5, 0.1, 1.5, 0.7, 0.3], 4)
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
    tokenizer, session = Tokenizer([ratio] * 6, 3), Session(words(rng))
    for _ in range(8):
        session.messages += exchange(rng)
        if len(session.messages) > most:
            del session.messages[2:4]
        usage = tokenizer.usage(session)
        estimator.learn(session, usage)
        assert estimator.estimate(session) == usage
        counts = [estimator.estimate_message(session, m) for m in session.messages]
        assert all(count >= 1 for count in counts)
    copy = Session(session.system_message, list(session.messages))
    assert estimator.estimate(copy) == tokenizer.usage(session)


@settings(max_examples=examples(25))
@given(st.lists(RATIO, min_size=6, max_size=6), SEEDS, st.data())
def test_what_stays_after_an_eviction_keeps_its_share(
    ratios: list[float], seed: int, data: st.DataObject
) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratios, 4), Session(words(rng))
    list(talk(session, tokenizer, estimator, rng, 20))
    start = data.draw(st.integers(0, 15))
    session.messages[start : start + data.draw(st.integers(1, 15))] = []
    assert estimator.estimate(session) == pytest.approx(tokenizer.usage(session), rel=0.15)


@settings(max_examples=examples(20))
@given(st.lists(RATIO, min_size=6, max_size=6), SEEDS)
def test_the_error_is_that_of_the_last_estimates(ratios: list[float], seed: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer(ratios, 4), Session(words(rng))
    assert estimator.error is None
    seen: list[float] = []
    for _ in range(15):
        session.messages += exchange(rng)
        usage = tokenizer.usage(session)
        seen.append(abs(estimator.estimate(session) - usage) / usage)
        estimator.learn(session, usage)
        assert estimator.error == pytest.approx(sum(seen[-10:]) / len(seen[-10:]), abs=0.02)


def test_only_new_text_is_looked_at_and_memory_is_bounded() -> None:
    rng, estimator = random.Random(7), TokenEstimator()
    tokenizer = Tokenizer([0.3] * 6, 4)
    tools = [ToolSpec("read_file", "Read a file. " * 50, {"type": "object"})]
    session = Session("Be brief. " * 100, tools=tools)
    for number in range(MAX_PARTS):
        new = [Message.assistant(f"{number} done"), Message.user(f"do {number} " + words(rng, 9))]
        for message in new:
            session.add(message)
        before = estimator.characters_read
        estimator.estimate(session)
        estimator.learn(session, tokenizer.usage(session))
        [estimator.estimate_message(session, m) for m in session.messages]
        if number:
            assert estimator.characters_read - before == sum(len(m.content) for m in new)
        if len(session.messages) > 20:
            session.evict([range(2)])
    assert estimator.remembered <= MAX_PARTS + MAX_PROMPTS


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
    assert estimator.estimate_message(plain, longer) > estimator.estimate_message(plain, long)


def test_reasoning_that_is_not_sent_back_is_found_out() -> None:
    rng, estimator = random.Random(3), TokenEstimator()
    tokenizer, session = Tokenizer([0.25] * 6, 4), Session(words(rng))
    for _ in range(20):
        text, prompt = words(rng), words(rng)
        thought = "".join(words(rng, 200) for _ in range(3))
        session.messages += [Message.assistant(text, thought), Message.user(prompt)]
        estimator.learn(session, tokenizer.usage(session))
    thinking = Message.assistant("Well.", "the quick brown fox jumps over. " * 50)
    assert estimator.estimate_message(session, thinking) < 30


@settings(max_examples=examples(25))
@given(st.integers(-5, 10**9), SEEDS)
def test_no_usage_is_too_strange(usage: int, seed: int) -> None:
    rng, estimator = random.Random(seed), TokenEstimator()
    tokenizer, session = Tokenizer([0.25] * 6, 4), Session(words(rng))
    for number in range(25):
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
def test_every_character_is_of_one_kind(text: str) -> None:
    counts = count_kinds(text)
    assert sum(counts) == len(text)
    assert min(counts) >= 0


@pytest.mark.parametrize(
    ("model", "other"),
    [
        ("claude-sonnet-4-20250514", "gpt-4o-mini"),
        ("openai/gpt-5", "gpt-4-turbo"),
        ("models/gemini-2.5-pro", "meta-llama/Llama-3.3-70B-Instruct"),
        ("qwen2.5-coder:7b", "mistral-large-latest"),
        ("deepseek-chat", "Llama-2-7b-chat"),
    ],
)
def test_families_are_told_by_the_models_name(model: str, other: str) -> None:
    assert prior_for(model) != prior_for(other)
    assert prior_for("nobody/knows-this") == FamilyPrior()


def test_an_image_costs_by_its_size_up_to_a_most() -> None:
    rule = ImageRule(base=0, pixels_per_token=750, maximum=1600)
    assert rule.tokens(1000, 750) == 1000
    assert rule.tokens(10_000, 10_000) == 1600


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=4), SEEDS)
def test_equations_are_solved(values: list[float], seed: int) -> None:
    rng = random.Random(seed)
    half = [[rng.uniform(-1, 1) for _ in values] for _ in values]
    square = [[sum(a * b for a, b in zip(r, s, strict=True)) for s in half] for r in half]
    for i, row in enumerate(square):
        row[i] += 0.5
    rows = [[*r, sum(a * v for a, v in zip(r, values, strict=True))] for r in square]
    assert solve(rows) == pytest.approx(values, rel=1e-6)


def test_an_unbelievable_observation_is_left_out() -> None:
    ratios, features = Ratios(), (100.0, *[0.0] * (len(KINDS) - 1))
    ratios.learn(features, 200)
    ratios.learn(features, 10**8)
    assert ratios.predict(features) == pytest.approx(200, rel=0.01)
