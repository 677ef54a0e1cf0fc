"""A short list of a large vocabulary gives the choice that the whole vocabulary gives."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.sampling.candidates import (
    MAX_TOKENS,
    Candidates,
    Shortlist,
    leading_tokens,
    log_total,
)
from shepherd.backends.llamacpp.sampling.native_chain import NativeChain
from shepherd.sampling import DEFAULT_SAMPLING, Sampling

SIZE = 20_000
Row = NDArray[np.float32]


class OneRow:
    """A context with the logits of one position."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def logits_row(self, _index: int, size: int) -> memoryview:
        assert size == len(self._row)
        return memoryview(self._row.tobytes())


def drawn(seed: int, *, spread: float = 3.0) -> Row:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(SIZE) * spread).astype(np.float32)


def chosen(chain: Any, candidates: Candidates) -> int | None:
    candidates.apply(chain)
    return candidates.selected


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.5, 3.0]),
    temperature=st.sampled_from([0.0, 0.8, 3.0]),
    top_k=st.sampled_from([1, 2, 40, 500]),
    biases=st.dictionaries(st.integers(0, 300), st.floats(-100, 100, width=32), max_size=4),
)
def test_a_chain_chooses_the_same_token(
    llama_model: NativeModel,
    seed: int,
    spread: float,
    temperature: float,
    top_k: int,
    biases: dict[int, float],
) -> None:
    sampling = Sampling(
        temperature=temperature, top_k=top_k, seed=seed, logit_bias=tuple(biases.items())
    ).over(DEFAULT_SAMPLING)
    row = drawn(seed, spread=spread)
    context = cast(NativeContext, OneRow(row))
    native = NativeChain(sampling, llama_model.vocab, 64)
    whole, chain = native.build(), native.build()
    candidates = Candidates(SIZE)
    candidates.fill(row)
    expected = chosen(whole, candidates)
    shortlist = Shortlist(SIZE, native.leaders, native.biases)
    some = shortlist.candidates(context, 0)
    assert some is not None
    assert chosen(chain, some) == expected
    for built in (whole, chain):
        bindings().llama_sampler_free(built)


@given(seed=st.integers(0, 100), count=st.sampled_from([1, 20, 300, SIZE]))
def test_the_leading_tokens_are_among_the_result(seed: int, count: int) -> None:
    row = drawn(seed)
    tokens = leading_tokens(row, count)
    assert set(np.argsort(-row)[:count].tolist()) <= set(tokens.tolist())
    assert tokens.tolist() == sorted(tokens.tolist())


def test_a_row_without_a_number_or_of_equal_logits_has_no_short_list() -> None:
    for value in (np.nan, -np.inf, 1.0):
        context = cast(NativeContext, OneRow(np.full(SIZE, value, np.float32)))
        shortlist = Shortlist(SIZE, 1, {0: -1.0})
        assert shortlist.candidates(context, 0) is None
    assert Shortlist(SIZE, MAX_TOKENS, {0: 1.0}).candidates(context, 0) is None


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=1.0, top_k=0),
    Sampling(temperature=1.0, mirostat=2),
    Sampling(temperature=1.0, top_n_sigma=1.0),
    Sampling(temperature=1.0, samplers=("penalties", "top_k"), penalty_repeat=1.5),
])  # fmt: skip
def test_other_chains_need_all_tokens(sampling: Sampling, llama_model: NativeModel) -> None:
    assert NativeChain(sampling.over(DEFAULT_SAMPLING), llama_model.vocab, 64).leaders == 0


def test_the_total_is_that_of_the_definition() -> None:
    row = drawn(1)
    expected = np.log(np.exp(row.astype(np.float64)).sum())
    assert log_total(row, np.empty_like(row)) == pytest.approx(expected, abs=1e-5)
