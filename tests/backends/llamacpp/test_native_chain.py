"""Each sampler against its definition, computed by hand."""

import ctypes
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.sampling.native_chain import NativeChain
from shepherd.sampling import DEFAULT_SAMPLING, SAMPLERS, Sampling

CONTEXT = 256
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=1)
"""Nothing but the pick."""

Floats = NDArray[np.float64]
Draw = Callable[..., Floats]
Names = Callable[[Sampling], list[str]]


def softmax(logits: Floats) -> Floats:
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def kept(logits: Floats, keep: Any) -> Floats:
    return softmax(np.where(keep, logits, -np.inf))


@pytest.fixture(params=range(3))
def logits(request: pytest.FixtureRequest, llama_model: NativeModel) -> Floats:
    generator = np.random.default_rng(request.param)
    drawn = generator.standard_normal(llama_model.vocab.size, dtype=np.float32) * 3
    return drawn.astype(np.float64)


@pytest.fixture
def shares(llama_model: NativeModel) -> Draw:
    """`shares(sampling, logits, seen)`: each token's probability when the chain picks."""
    lib, vocab = bindings(), llama_model.vocab

    def draw(sampling: Sampling, logits: Floats, seen: Sequence[int] = ()) -> Floats:
        data = (lib.llama_token_data * vocab.size)()
        for token, logit in enumerate(logits):
            data[token].id, data[token].logit = token, logit
        array = lib.llama_token_data_array(data, vocab.size, -1, False)
        chain = NativeChain(sampling.over(DEFAULT_SAMPLING), vocab, CONTEXT).build()
        for token in seen:
            lib.llama_sampler_accept(chain, token)
        lib.llama_sampler_apply(chain, ctypes.byref(array))
        lib.llama_sampler_free(chain)
        found = np.zeros(vocab.size)
        for i in range(array.size):
            found[array.data[i].id] = array.data[i].p
        return found

    return draw


@pytest.fixture
def names(llama_model: NativeModel) -> Names:
    lib = bindings()

    def of(sampling: Sampling) -> list[str]:
        chain = NativeChain(sampling.over(DEFAULT_SAMPLING), llama_model.vocab, CONTEXT).build()
        links = [
            lib.llama_sampler_chain_get(chain, i) for i in range(lib.llama_sampler_chain_n(chain))
        ]
        found = [lib.llama_sampler_name(link).decode() for link in links]
        lib.llama_sampler_free(chain)
        return found

    return of


def assert_equal(found: Floats, expected: Floats) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert ((found > 0) == (expected > 1e-30)).all()


def test_nothing_on_is_the_models_own_distribution(shares: Draw, logits: Floats) -> None:
    assert_equal(shares(OPEN, logits), softmax(logits))


@pytest.mark.parametrize("n", [0.5, 1.0, 2.0])
def test_top_n_sigma(n: float, shares: Draw, logits: Floats) -> None:
    expected = kept(logits, logits >= logits.max() - n * logits.std())
    assert_equal(shares(Sampling(top_n_sigma=n).over(OPEN), logits), expected)


@pytest.mark.parametrize("p", [0.2, 0.7, 0.95])
def test_typical_p(p: float, shares: Draw, logits: Floats) -> None:
    chances = softmax(logits)
    surprise = -np.log(chances)
    order = np.argsort(np.abs(surprise - (chances * surprise).sum()))
    count = int(np.searchsorted(np.cumsum(chances[order]), p, side="right")) + 1
    expected = kept(logits, np.isin(np.arange(len(logits)), order[:count]))
    assert_equal(shares(Sampling(typical_p=p).over(OPEN), logits), expected)


def test_typical_p_beside_tokens_that_are_impossible(shares: Draw, logits: Floats) -> None:
    banned = tuple((int(t), -100.0) for t in np.argsort(-logits)[:3])
    found = shares(Sampling(typical_p=0.5, logit_bias=banned).over(OPEN), logits)
    left = logits.copy()
    left[[t for t, _ in banned]] = -1e4
    assert_equal(found, shares(Sampling(typical_p=0.5).over(OPEN), left))


@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.5])
def test_xtc_leaves_the_least_likely_of_the_top(
    threshold: float, shares: Draw, logits: Floats
) -> None:
    chances = softmax(logits)
    tops = chances[chances >= threshold]
    expected = kept(logits, chances <= tops.min()) if len(tops) else chances
    always = Sampling(xtc_probability=1.0, xtc_threshold=threshold, min_keep=0)
    assert_equal(shares(always.over(OPEN), logits), expected)


@pytest.mark.parametrize(("spread", "exponent"), [(0.5, 1.0), (0.9, 2.0)])
def test_dynamic_temperature(spread: float, exponent: float, shares: Draw, logits: Floats) -> None:
    chances = softmax(logits)
    entropy = -(chances * np.log(chances)).sum() / np.log(len(logits))
    warmth = 1.0 - spread + 2 * spread * entropy**exponent
    dynamic = Sampling(dynatemp_range=spread, dynatemp_exponent=exponent)
    assert_equal(shares(dynamic.over(OPEN), logits), softmax(logits / warmth))


def test_penalties(shares: Draw, logits: Floats) -> None:
    seen = [40, 41, 40, 42]
    sampling = Sampling(penalty_repeat=1.5, penalty_freq=0.5, penalty_present=0.25)
    expected = logits.copy()
    for token in set(seen):
        expected[token] *= 1.5 if expected[token] <= 0 else 1 / 1.5
        expected[token] -= 0.5 * seen.count(token) + 0.25
    assert_equal(shares(sampling.over(OPEN), logits, seen), softmax(expected))


@pytest.mark.parametrize(("seen", "repeated"), [("XYZ--XYZ", 3), ("YZ--XYZ", 2), ("Z-X-Z", 0)])
def test_dry_punishes_what_would_go_on_repeating(
    seen: str, repeated: int, shares: Draw, logits: Floats, llama_model: NativeModel
) -> None:
    tokens = [llama_model.vocab.tokenize(c)[-1] for c in seen]
    expected = logits.copy()
    if repeated:
        expected[tokens[-4]] -= 0.8 * 1.75 ** (repeated - 2)
    dry = Sampling(dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2)
    assert_equal(shares(dry.over(OPEN), logits, tokens), softmax(expected))
    broken = Sampling(dry_sequence_breakers=("Z",)).over(dry)
    assert_equal(shares(broken.over(OPEN), logits, tokens), softmax(logits))


def test_dry_looks_back_as_far_as_it_is_told(
    shares: Draw, logits: Floats, llama_model: NativeModel
) -> None:
    tokens = [llama_model.vocab.tokenize(c)[-1] for c in "XYZ--XYZ"]
    dry = Sampling(dry_multiplier=0.8, dry_penalty_last_n=5)
    assert_equal(shares(dry.over(OPEN), logits, tokens), softmax(logits))


@pytest.mark.parametrize("tau", [1.0, 2.0])
def test_mirostat_2_cuts_what_is_too_surprising(tau: float, shares: Draw, logits: Floats) -> None:
    warm = logits / 0.8
    surprises = -np.log2(softmax(warm))
    expected = kept(warm, surprises <= max(2 * tau, surprises.min()))
    sampling = Sampling(mirostat=2, mirostat_tau=tau, temperature=0.8, top_k=1)
    assert_equal(shares(sampling.over(OPEN), logits), expected)


def test_mirostat_1_keeps_as_many_as_its_estimate_says(shares: Draw, logits: Floats) -> None:
    chances = np.sort(softmax(logits))[::-1]
    ranks = np.arange(99)
    steps = np.log((ranks + 2) / (ranks + 1))
    falls = np.log(chances[:99] / chances[1:100])
    slope = (steps * falls).sum() / (steps**2).sum()
    excess = slope - 1
    k = ((excess * 2**4.0) / (1 - len(logits) ** -excess)) ** (1 / slope)
    expected = kept(logits, softmax(logits) >= chances[max(int(k), 1) - 1])
    sampling = Sampling(mirostat=1, mirostat_tau=2.0)
    assert_equal(shares(sampling.over(OPEN), logits), expected)


def test_a_bias_is_added_bans_or_forces(shares: Draw, logits: Floats) -> None:
    expected = logits.copy()
    expected[50] += 2.5
    expected[int(logits.argmax())] = -np.inf
    biases = ((50, 2.5), (int(logits.argmax()), -100.0))
    assert_equal(shares(Sampling(logit_bias=biases).over(OPEN), logits), softmax(expected))
    forced = shares(Sampling(logit_bias=((int(logits.argmin()), 100.0),)).over(OPEN), logits)
    assert forced[logits.argmin()] == pytest.approx(1.0)


def test_ignore_eos_bans_every_end(shares: Draw, logits: Floats, llama_model: NativeModel) -> None:
    ends = llama_model.vocab.ends
    assert ends
    expected = kept(logits, ~np.isin(np.arange(len(logits)), ends))
    wanted = Sampling(ignore_eos=True, logit_bias=((ends[0], 100.0),))
    assert_equal(shares(wanted.over(OPEN), logits), expected)


def test_the_order_is_the_one_asked_for(shares: Draw, logits: Floats) -> None:
    hot = Sampling(temperature=3.0, min_p=0.2).over(OPEN)
    before = logits >= logits.max() + np.log(0.2)
    after = logits / 3 >= logits.max() / 3 + np.log(0.2)
    assert before.sum() < after.sum()
    first = Sampling(samplers=("min_p", "temperature"))
    last = Sampling(samplers=("temperature", "min_p"))
    assert_equal(shares(first.over(hot), logits), kept(logits / 3, before))
    assert_equal(shares(last.over(hot), logits), kept(logits / 3, after))
    assert_equal(shares(Sampling(samplers=("min_p",)).over(hot), logits), kept(logits, before))
    assert_equal(shares(Sampling(samplers=()).over(hot), logits), softmax(logits))


EVERYTHING = Sampling(
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    typical_p=0.9,
    top_n_sigma=1.0,
    xtc_probability=0.5,
    penalty_repeat=1.1,
    dry_multiplier=0.8,
)
NATIVE = [
    "dry",
    "top-n-sigma",
    "top-k",
    "typical",
    "top-p",
    "min-p",
    "xtc",
    "penalties",
    "temp-ext",
]


def test_all_samplers_at_once_in_the_default_order(names: Names) -> None:
    found = names(EVERYTHING)
    found.remove("min-p")  # drops what is impossible, for typical_p
    assert found == [*NATIVE, "dist"]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_is_kept(seed: int, names: Names) -> None:
    order = random.Random(seed).sample(range(len(SAMPLERS)), len(SAMPLERS))
    chosen = Sampling(samplers=tuple(SAMPLERS[i] for i in order), min_p=0.0)
    wanted = [NATIVE[i] for i in order if SAMPLERS[i] != "min_p"]
    found = names(chosen.over(EVERYTHING))
    found.remove("min-p")
    assert found == [*wanted, "dist"]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), ["top-k", "top-p", "temp-ext", "dist"]),
        (Sampling(temperature=1.0, top_k=0, top_p=1.0), ["dist"]),
        (Sampling(temperature=0.0, min_p=0.5, top_n_sigma=1.0), ["greedy"]),
        (Sampling(temperature=0.0, mirostat=2), ["greedy"]),
        (Sampling(temperature=0.0, dry_multiplier=1.0), ["dry", "top-k", "top-p", "greedy"]),
        (Sampling(mirostat=1, dry_multiplier=1.0), ["temp", "min-p", "mirostat"]),
        (Sampling(mirostat=2, penalty_freq=1.0), ["temp", "min-p", "mirostat-v2"]),
    ],
)
def test_what_is_off_is_not_there(sampling: Sampling, expected: list[str], names: Names) -> None:
    assert names(sampling) == expected
