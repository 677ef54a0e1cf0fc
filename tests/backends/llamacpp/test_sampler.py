from collections.abc import Iterator

import numpy as np
import pytest

from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params
from shepherd.backends.llamacpp.sampling.native_chain import resolve_biases
from shepherd.backends.llamacpp.sampling.sampler import NO_TOKEN, SamplerChain
from shepherd.errors import InvalidRequestError
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import held_to, settings

PROMPT = [30, 40, 50, 60]


@pytest.fixture(scope="module")
def context(llama_model: NativeModel) -> Iterator[NativeContext]:
    """A context whose last batch holds logits."""
    context = NativeContext(llama_model, context_params(settings(), 1, llama_model.traits))
    context.decode([Span(0, 0, PROMPT, wants_logits=True)])
    yield context
    context.close()


@pytest.fixture(scope="module")
def best(context: NativeContext, llama_model: NativeModel) -> int:
    logits = context.logits(len(PROMPT) - 1, llama_model.vocab.size)
    return logits.index(max(logits))


def sample(
    sampling: Sampling,
    context: NativeContext,
    model: NativeModel,
    seen: list[int] | None = None,
    times: int = 1,
) -> list[int]:
    chain = SamplerChain(sampling, model.vocab, context.size)
    chain.prime(seen or [])
    tokens = [chain.sample(context, len(PROMPT) - 1) for _ in range(times)]
    chain.close()
    chain.close()
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=0.0, penalty_present=1.0),
        Sampling(temperature=5.0, top_k=1),
        Sampling(temperature=5.0, top_p=0.0),
        Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=1.0),
        Sampling(temperature=0.01, top_k=0, top_p=1.0, seed=1),
    ],
)
def test_the_narrowest_choice_is_the_best_token(
    sampling: Sampling, context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    assert sample(sampling, context, llama_model) == [best]


def test_min_keep_keeps_more_than_top_p_would(
    context: NativeContext, llama_model: NativeModel
) -> None:
    narrow = Sampling(temperature=5.0, top_p=0.0, min_keep=10, seed=1)
    assert len(set(sample(narrow, context, llama_model, times=50))) > 1


def test_a_seed_repeats_and_no_seed_varies(
    context: NativeContext, llama_model: NativeModel
) -> None:
    wide = Sampling(temperature=2.0, top_k=0, top_p=1.0, seed=7)
    first = sample(wide, context, llama_model, times=20)
    assert sample(wide, context, llama_model, times=20) == first
    free = Sampling(temperature=2.0, top_k=0, top_p=1.0)
    drawn = [sample(free, context, llama_model, times=20) for _ in range(3)]
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "penalty",
    [{"penalty_present": 10.0}, {"penalty_freq": 10.0}, {"penalty_repeat": 10.0}],
)
def test_penalties_see_what_came_before(
    penalty: dict[str, float], context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    greedy = Sampling(temperature=0.0, **penalty)  # pyright: ignore[reportArgumentType]
    assert sample(greedy, context, llama_model) == [best]
    assert sample(greedy, context, llama_model, [best]) != [best]
    two = sample(greedy, context, llama_model, times=2)
    assert two[0] != two[1]


@pytest.mark.parametrize(("last_n", "picked"), [(0, 1), (2, 1), (3, 0), (-1, 0)])
def test_penalties_look_back_as_far_as_last_n(
    last_n: int, picked: int, context: NativeContext, llama_model: NativeModel, best: int
) -> None:
    sampling = Sampling(temperature=0.0, penalty_present=10.0, penalty_last_n=last_n)
    others = [t for t in (30, 31, 32) if t != best][:2]
    tokens = sample(sampling, context, llama_model, [best, *others])
    assert tokens.count(best) == picked


WIDE = Sampling(temperature=2.0, top_k=0, top_p=1.0, xtc_probability=0.5, penalty_freq=0.5, seed=3)
LAST = len(PROMPT) - 1


def test_sampling_is_picking_and_accepting(
    context: NativeContext, llama_model: NativeModel
) -> None:
    whole = sample(WIDE, context, llama_model, times=20)
    chain = SamplerChain(WIDE, llama_model.vocab, context.size)
    for expected in whole:
        assert chain.pick(context, LAST) == expected
        chain.accept(expected)
    chain.close()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=1.5, top_k=3),
        Sampling(temperature=0.0, logit_bias=((70, 100.0),)),
    ],
)
def test_log_probabilities_are_those_of_the_model(
    sampling: Sampling, context: NativeContext, llama_model: NativeModel
) -> None:
    vocab = llama_model.vocab
    logits = np.array(context.logits(LAST, vocab.size), dtype=np.float64)
    expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    order = np.argsort(-logits)
    for count in (0, 1, 20):
        chain = SamplerChain(Sampling(logprobs=count).over(sampling), vocab, context.size)
        token = chain.sample(context, LAST)
        found = chain.logprob
        chain.close()
        assert found is not None
        assert found.piece == vocab.piece(token)
        assert found.logprob == pytest.approx(expected[token], abs=1e-5)
        assert [c.piece for c in found.top] == [vocab.piece(int(t)) for t in order[:count]]
        assert [c.logprob for c in found.top] == pytest.approx(expected[order[:count]], abs=1e-5)


def test_log_probabilities_change_no_choice(
    context: NativeContext, llama_model: NativeModel
) -> None:
    plain = sample(WIDE, context, llama_model, times=20)
    assert sample(Sampling(logprobs=2).over(WIDE), context, llama_model, times=20) == plain


def test_biases_of_texts_are_those_of_their_tokens(llama_model: NativeModel) -> None:
    vocab = llama_model.vocab
    wanted = Sampling(logit_bias=(("hello w", -5.0), (7, 2.0)))
    tokens = vocab.tokenize("hello w")
    assert resolve_biases(wanted, vocab).logit_bias == (*((t, -5.0) for t in tokens), (7, 2.0))


@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_bias_of_no_token_is_refused(token: int, llama_model: NativeModel) -> None:
    with pytest.raises(InvalidRequestError, match=f"there is no token {token}"):
        resolve_biases(Sampling(logit_bias=((token, 1.0),)), llama_model.vocab)


def test_something_must_be_left(llama_model: NativeModel) -> None:
    all_but_ends = [t for t in range(llama_model.vocab.size) if t not in llama_model.vocab.ends]
    banned = Sampling(logit_bias=tuple((t, -100.0) for t in all_but_ends))
    assert resolve_biases(banned, llama_model.vocab) == banned
    with pytest.raises(InvalidRequestError, match="every token"):
        resolve_biases(Sampling(ignore_eos=True).over(banned), llama_model.vocab)


def test_a_bias_can_not_outdo_a_grammar(context: NativeContext, llama_model: NativeModel) -> None:
    vocab = llama_model.vocab
    forced = Sampling(temperature=0.0, logit_bias=((vocab.tokenize("Q")[-1], 100.0),))
    chain = SamplerChain(forced, vocab, context.size, held_to('root ::= "Z"', vocab))
    tokens = [chain.sample(context, LAST) for _ in range(3)]
    chain.close()
    assert b"".join(vocab.piece(t) for t in tokens if t not in vocab.ends).strip() == b"Z"


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.0),
        Sampling(),
        Sampling(mirostat=1),
        Sampling(mirostat=2),
        Sampling(typical_p=0.5, xtc_probability=1.0, top_n_sigma=1.0, dynatemp_range=0.5),
        Sampling(dry_multiplier=1.0, penalty_freq=1.0, min_p=0.1),
    ],
)
def test_where_a_ban_and_a_grammar_leave_nothing_the_answer_ends(
    sampling: Sampling, context: NativeContext, llama_model: NativeModel
) -> None:
    endless = Sampling(ignore_eos=True).over(sampling)
    vocab = llama_model.vocab
    chain = SamplerChain(endless, vocab, context.size, held_to('root ::= "Z"', vocab))
    tokens = [chain.sample(context, LAST) for _ in range(4)]
    chain.close()
    assert tokens[0] != NO_TOKEN
    assert tokens[-2:] == [NO_TOKEN, NO_TOKEN]
    assert not set(tokens) & set(llama_model.vocab.ends)
