"""Which tokens are made likelier, less likely or impossible."""

import math
from collections.abc import Iterator
from dataclasses import replace

from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.errors import InvalidRequestError
from shepherd.sampling import BIAS_RANGE, Sampling


def resolve_biases(sampling: Sampling, vocab: Vocab) -> Sampling:
    """The same with the tokens of each text in `logit_bias` instead of the text.

    Raises InvalidRequestError for a token that there is not, or if no token were left.
    """
    resolved = replace(sampling, logit_bias=tuple(_numbered(sampling, vocab)))
    impossible = [t for t, bias in token_biases(resolved, vocab).items() if bias == -math.inf]
    if len(impossible) >= vocab.size:
        raise InvalidRequestError("logit_bias bans every token of the model", "logit_bias")
    return resolved


def token_biases(sampling: Sampling, vocab: Vocab) -> dict[int, float]:
    """What is added to each token's logit; a bias at the lower end of its range is a ban."""
    biases = {
        token: -math.inf if bias <= BIAS_RANGE[0] else bias
        for token, bias in sampling.logit_bias or ()
        if isinstance(token, int)
    }
    banned = [*vocab.suppressed, *(vocab.ends if sampling.ignore_eos else ())]
    return biases | dict.fromkeys(banned, -math.inf)


def _numbered(sampling: Sampling, vocab: Vocab) -> Iterator[tuple[int, float]]:
    for token, bias in sampling.logit_bias or ():
        if isinstance(token, str):
            yield from ((number, bias) for number in vocab.tokenize(token))
        elif 0 <= token < vocab.size:
            yield token, bias
        else:
            last = vocab.size - 1
            message = f"logit_bias: there is no token {token}; this model has tokens 0 to {last}"
            raise InvalidRequestError(message, "logit_bias")
