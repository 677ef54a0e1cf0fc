import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.scheduling.drafts import AcceptanceRate, BatchCosts, StepBudget

shares = st.floats(0.05, 0.95)


def learned(first: float, each: float, sizes: list[int]) -> BatchCosts:
    """Costs of a machine on which a batch takes `first` seconds and `each` more per token."""
    costs = BatchCosts()
    for size in sizes:
        costs.note(size, first + each * (size - 1))
    return costs


def taught(rate: float, tokens: int = 2000) -> AcceptanceRate:
    """What is learned from drafts whose tokens are right as often as that."""
    luck = random.Random(0)
    known = AcceptanceRate(0.4)
    for _ in range(tokens):
        known.note(int(luck.random() < rate), 1)
    return known


@given(first=st.floats(0.001, 1.0), each=st.floats(0.0, 0.5))
def test_costs_of_other_sizes_follow_the_line(first: float, each: float) -> None:
    costs = learned(first, first * each, [1, 5, 2, 9] * 10)
    for size in (1, 4, 17):
        assert costs.seconds(size) == pytest.approx(first * (1 + each * (size - 1)), rel=0.05)


def test_one_slow_batch_changes_little() -> None:
    costs = learned(0.01, 0.001, [1, 5, 2, 9] * 10)
    costs.note(1, 10.0)
    assert costs.seconds(1) < 0.02


def test_a_token_costs_no_less_than_one_of_a_prompt() -> None:
    costs = BatchCosts()
    for _ in range(3000):
        costs.note(1, 0.01, prompt_tokens=64, prompt_seconds=0.64)
    assert costs.seconds(2) >= 0.0199


@given(prompt=st.integers(2, 512), each=st.floats(0.0, 1.0))
def test_any_prompt_tells_what_one_more_token_costs(prompt: int, each: float) -> None:
    costs = BatchCosts()
    costs.note(1, 0.01, prompt, 0.01 * (1 + each * (prompt - 1)))
    assert costs.seconds(5) == pytest.approx(0.01 * (1 + each * 4))


@given(shares)
def test_a_chance_is_learned(share: float) -> None:
    assert taught(share).value == pytest.approx(share, abs=0.2)


@given(shares, st.integers(1, 16))
def test_expected_tokens_of_a_draft(share: float, length: int) -> None:
    rate = AcceptanceRate(0.4)
    rate.value = share
    assert rate.expected(length) == pytest.approx(sum(share**i for i in range(1, length + 1)))


def test_requests_start_from_what_others_learned() -> None:
    shared = taught(0.9)
    assert AcceptanceRate(0.4, shared).value > 0.8
    own = AcceptanceRate(0.4, shared)
    for _ in range(200):
        own.note(0, 4)
    assert own.value < 0.1
    assert shared.value < 0.3


def test_what_is_not_tried_is_forgotten() -> None:
    rate = taught(0.0)
    for _ in range(5000):
        rate.forget()
    assert rate.value == pytest.approx(0.4, abs=0.01)


@given(shares, st.floats(0.0, 1.0), st.integers(1, 8))
def test_the_best_length_is_the_fastest(share: float, each: float, jobs: int) -> None:
    rate = AcceptanceRate(0.4)
    rate.value = share
    costs = learned(0.01, 0.01 * each, [1, 5, 2, 9] * 10)
    length = StepBudget(costs, jobs).best_length(rate, 16)

    def speed(count: int) -> float:
        return (jobs + rate.expected(count)) / costs.seconds(jobs + count)

    fastest = max(range(17), key=speed)
    assert speed(length) == pytest.approx(speed(fastest), rel=0.06)
    assert length == 0 or speed(length) > speed(0) * 1.049


def test_where_a_token_costs_as_much_as_a_batch_nothing_is_drafted() -> None:
    costs = learned(0.01, 0.01, [1, 5, 2, 9] * 10)
    rate = AcceptanceRate(0.4)
    rate.value = 0.9
    assert StepBudget(costs, 1).best_length(rate, 16) == 0


def test_where_a_token_costs_nothing_drafts_are_long_but_a_slow_guesser_is_not_asked() -> None:
    costs = learned(0.01, 0.0, [1, 5, 2, 9] * 10)
    rate = AcceptanceRate(0.4)
    rate.value = 0.9
    assert StepBudget(costs, 1).best_length(rate, 16) == 16
    assert StepBudget(costs, 1).best_length(rate, 16, seconds_per_token=0.02) == 0


def test_before_anything_was_measured_nothing_is_drafted() -> None:
    assert StepBudget(BatchCosts(), 1).best_length(AcceptanceRate(0.4), 16) == 0
