"""Log probabilities as OpenAI writes them."""

from collections.abc import Sequence

from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import JsonObject

IMPOSSIBLE = -9999.0
"""OpenAI's number for what has no probability, since JSON has no infinity."""


def token_logprobs(tokens: Sequence[TokenLogprob]) -> list[JsonObject]:
    """Each token with its probability and those of the likeliest ones."""
    return [_probability(t) | {"top_logprobs": [_probability(p) for p in t.top]} for t in tokens]


def _probability(token: TokenProbability) -> JsonObject:
    return {
        "token": token.text,
        "logprob": max(token.logprob, IMPOSSIBLE),
        "bytes": list(token.piece),
    }
