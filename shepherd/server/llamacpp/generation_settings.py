"""Sampling parameters as llama.cpp's server reports them."""

from typing import Any

from shepherd.messages import JsonObject
from shepherd.sampling import BIAS_RANGE, Sampling
from shepherd.server.generation import NO_TOKENS

RANDOM_SEED = 2**32 - 1
"""llama.cpp's number for a seed of its own choice."""

_SAME = (
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_k",
    "top_p",
    "min_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "typical_p",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "min_keep",
)


def generation_settings(sampling: Sampling, max_tokens: int = 0, **others: Any) -> JsonObject:
    """The parameters of a request, under llama.cpp's names; `max_tokens` 0: as many as fit."""
    limit = {0: -1, NO_TOKENS: 0}.get(max_tokens, max_tokens)
    return {
        "seed": RANDOM_SEED if sampling.seed is None else sampling.seed,
        **{name: getattr(sampling, name) for name in _SAME},
        "repeat_last_n": sampling.penalty_last_n,
        "repeat_penalty": sampling.penalty_repeat,
        "presence_penalty": sampling.penalty_present,
        "frequency_penalty": sampling.penalty_freq,
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers or ()),
        "adaptive_target": -1.0,
        "adaptive_decay": 0.0,
        "stop": list(sampling.stop or ()),
        "max_tokens": limit,
        "n_predict": limit,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": bool(sampling.ignore_eos),
        "logit_bias": [_bias(token, bias) for token, bias in sampling.logit_bias or ()],
        "n_probs": sampling.logprobs or 0,
        "samplers": list(sampling.samplers or ()),
        "lora": [],
        **others,
    }


def _bias(token: int | str, bias: float) -> JsonObject:
    """A ban is null, as JSON writes llama.cpp's infinity."""
    return {"bias": None if bias <= BIAS_RANGE[0] else bias, "token": token}
