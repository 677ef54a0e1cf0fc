"""Sampling parameters of a request and of a model's file, resolved for llama.cpp."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.errors import InvalidRequestError
from shepherd.sampling import BIAS_RANGE, Sampling, check_sampling

KEYS: dict[str, tuple[str, type[int] | type[float]]] = {
    "temp": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "xtc_probability": ("xtc_probability", float),
    "xtc_threshold": ("xtc_threshold", float),
    "penalty_last_n": ("penalty_last_n", int),
    "penalty_repeat": ("penalty_repeat", float),
    "mirostat": ("mirostat", int),
    "mirostat_tau": ("mirostat_tau", float),
    "mirostat_eta": ("mirostat_eta", float),
}
"""`general.sampling.*` of the GGUF format, with our names."""


def resolve_biases(sampling: Sampling, vocab: Vocab) -> Sampling:
    """The parameters with token numbers instead of texts in `logit_bias`.

    Raises InvalidRequestError for an unknown token, or if all tokens are banned.
    """
    resolved = replace(sampling, logit_bias=tuple(_numbered(sampling, vocab)))
    impossible = [t for t, bias in token_biases(resolved, vocab).items() if bias == -math.inf]
    if len(impossible) >= vocab.size:
        raise InvalidRequestError("logit_bias bans every token of the model", "logit_bias")
    return resolved


def token_biases(sampling: Sampling, vocab: Vocab) -> dict[int, float]:
    """The biases that are added to logits; the minimum of the range bans a token."""
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


def recommended_sampling(metadata: Callable[[str], str]) -> Sampling:
    """The parameters in a file's header, which `metadata` reads; invalid values are ignored."""
    values: dict[str, Any] = {}
    for key, (name, kind) in KEYS.items():
        text = metadata(f"general.sampling.{key}")
        try:
            value: Any = kind(text)
            check_sampling(Sampling(**{name: value}))
        except (ValueError, InvalidRequestError):
            continue
        values[name] = value
    return Sampling(**values)
