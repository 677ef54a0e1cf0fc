"""Log probabilities in OpenAI's shape."""

from collections.abc import Sequence

from shepherd.logprobs import TokenLogprob, TokenProbability
from shepherd.messages import JsonObject

_IMPOSSIBLE = -9999.0
"""OpenAI's word for what has no probability, since JSON has no infinity."""


def wire_logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    """The `logprobs` object of a choice."""
    return {"content": [_token(token) for token in tokens], "refusal": None}


def _token(token: TokenLogprob) -> JsonObject:
    return _chance(token) | {"top_logprobs": [_chance(chance) for chance in token.top]}


def _chance(chance: TokenProbability) -> JsonObject:
    return {
        "token": chance.text,
        "logprob": max(chance.logprob, _IMPOSSIBLE),
        "bytes": list(chance.piece),
    }
