"""Our sampling parameters as TensorRT-LLM's."""

import secrets
from collections.abc import Mapping
from typing import Any

from shepherd.errors import InvalidRequestError
from shepherd.sampling import DEFAULT_SAMPLING, Sampling
from shepherd.session import Session
from shepherd.structure import OutputFormat

_PLAIN = {
    "penalty_repeat": "repetition_penalty",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "min_p": "min_p",
}
"""Parameters that are sent if they have an effect."""

_MISSING: Mapping[str, tuple[str, float]] = {
    "typical_p": ("locally typical sampling", 1.0),
    "top_n_sigma": ("top-n-sigma", 0.0),
    "xtc_probability": ("XTC", 0.0),
    "dynatemp_range": ("dynamic temperature", 0.0),
    "dry_multiplier": ("DRY", 0.0),
    "mirostat": ("Mirostat", 0),
}
"""Parameters that it lacks, each with the value that turns it off."""


def sampling_params(
    sampling: Sampling, unsupported: Mapping[str, str], ends: tuple[int, ...]
) -> Any:
    """The arguments of `SamplingParams` except the limit, from complete parameters.

    `unsupported` names parameters that would be ignored; `ends` end an answer. Raises
    InvalidRequestError with the names of unsupported parameters.
    """
    _refuse(sampling, unsupported)
    # Text is decoded here: its own detokenizer would drop special tokens and stop strings.
    result: dict[str, Any] = {"detokenize": False}
    result |= _shape(sampling)
    # Without a seed it would always use the same one.
    result["seed"] = secrets.randbits(32) if sampling.seed is None else sampling.seed
    for ours, theirs in _PLAIN.items():
        value = getattr(sampling, ours)
        if value != getattr(DEFAULT_SAMPLING, ours):
            result[theirs] = value
    if sampling.ignore_eos:
        result["ignore_eos"] = True
    elif ends:
        result["stop_token_ids"] = list(ends)
    if sampling.logprobs is not None:
        result["logprobs"] = max(1, sampling.logprobs)
    return result


def guide(session: Session, *, guides: bool) -> Mapping[str, Any] | None:
    """The arguments of `GuidedDecodingParams`, None for a free answer.

    Raises InvalidRequestError for a format that can't be enforced.
    """
    if session.tool_choice is not None:
        raise InvalidRequestError(
            "tool_choice: TensorRT-LLM in this process can't be made to call a tool; leave the "
            "choice to the model.",
            "tool_choice",
        )
    output_format: OutputFormat | None = session.output_format
    if output_format is None:
        return None
    if not guides:
        raise InvalidRequestError(
            "response_format: guided decoding is off for this provider; set its guided-decoding "
            "to xgrammar.",
            "response_format",
        )
    if output_format.schema is not None:
        return {"json": output_format.schema}
    return {"grammar": output_format.grammar}


def _shape(sampling: Sampling) -> dict[str, Any]:
    """Temperature, top-k and top-p; greedy selection is written in a way that all versions know."""
    if not sampling.temperature or not sampling.top_p or sampling.top_k == 1:
        return {"top_k": 1}
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p,
    }


def _refuse(sampling: Sampling, unsupported: Mapping[str, str]) -> None:
    for name, (what, off) in _MISSING.items():
        value = getattr(sampling, name)
        if value is not None and value != off and not (name == "top_n_sigma" and value < 0):
            raise _refusal(name, f"TensorRT-LLM has no {what}; set it to {off:g}")
    if sampling.samplers not in (None, DEFAULT_SAMPLING.samplers):
        raise _refusal("samplers", "TensorRT-LLM has one order of samplers; leave it out")
    if sampling.logit_bias:
        raise _refusal("logit_bias", "TensorRT-LLM in this process has none; leave it out")
    for name, reason in unsupported.items():
        value = getattr(sampling, name)
        if value is not None and value != getattr(DEFAULT_SAMPLING, name):
            raise _refusal(name, reason)


def _refusal(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: {reason}.", name)
