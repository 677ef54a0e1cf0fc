"""Sampling parameters of a request, with the range of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from shepherd.errors import InvalidRequestError

SAMPLERS = (
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "penalties",
    "temperature",
)
"""The samplers of the default order."""

EXTRA_SAMPLERS = ("infill",)
"""Samplers that only act if a request names them."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of one request; None leaves a parameter to the backend's settings.

    `samplers` are applied in their order. `logit_bias` pairs a token's number, or a text, with a
    number that is added to its logit. `logprobs` requests log probabilities with this number of
    alternatives.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_keep: int | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    penalty_repeat: float | None = None
    penalty_freq: float | None = None
    penalty_present: float | None = None
    penalty_last_n: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[str, ...] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    samplers: tuple[str, ...] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    logit_bias: tuple[tuple[int | str, float], ...] | None = None
    ignore_eos: bool | None = None
    logprobs: int | None = None

    def over(self, defaults: "Sampling") -> "Sampling":
        """These parameters, with `defaults` where one is None."""
        parameters = {
            f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None
        }
        return replace(defaults, **parameters)


DEFAULT_SAMPLING = Sampling(
    temperature=0.7,
    top_p=0.9,
    top_k=40,
    min_p=0.0,
    min_keep=1,
    typical_p=1.0,
    top_n_sigma=0.0,
    xtc_probability=0.0,
    xtc_threshold=0.1,
    dynatemp_range=0.0,
    dynatemp_exponent=1.0,
    penalty_repeat=1.0,
    penalty_freq=0.0,
    penalty_present=0.0,
    penalty_last_n=64,
    dry_multiplier=0.0,
    dry_base=1.75,
    dry_allowed_length=2,
    dry_penalty_last_n=-1,
    dry_sequence_breakers=("\n", ":", '"', "*"),
    mirostat=0,
    mirostat_tau=5.0,
    mirostat_eta=0.1,
    samplers=SAMPLERS,
    stop=(),
)
"""The default sampling of local backends; `seed` None means random."""

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1_000_000),
    "min_p": (0.0, 1.0),
    "min_keep": (0, 1_000_000),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, 100.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dynatemp_range": (0.0, 10.0),
    "dynatemp_exponent": (0.0, 10.0),
    "penalty_repeat": (0.01, 10.0),
    "penalty_freq": (-10.0, 10.0),
    "penalty_present": (-10.0, 10.0),
    "penalty_last_n": (-1, 1_000_000),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (0, 1_000_000),
    "dry_penalty_last_n": (-1, 1_000_000),
    "mirostat": (0, 2),
    "mirostat_tau": (0.0, 100.0),
    "mirostat_eta": (0.0, 10.0),
    "seed": (0, 2**32 - 1),
    "logprobs": (0, 20),
}
"""Inclusive range of each numeric parameter."""

BIAS_RANGE = (-100.0, 100.0)

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 4096
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 40
MAX_BIASES = 1024

_SEED_STEP = 0x9E3779B1
_SEEDS = 2**32 - 1


def check_sampling(sampling: Sampling) -> Sampling:
    """Return `sampling` unchanged; raise InvalidRequestError for a value out of its range."""
    for name, (low, high) in RANGES.items():
        _check_range(name, getattr(sampling, name), low, high)
    stop = sampling.stop or ()
    if len(stop) > MAX_STOP_STRINGS or any(not s for s in stop):
        message = f"stop takes at most {MAX_STOP_STRINGS} non-empty strings"
        raise InvalidRequestError(message, "stop")
    if any(len(s) > MAX_STOP_CHARACTERS for s in stop):
        message = f"stop takes texts of at most {MAX_STOP_CHARACTERS:,} characters"
        raise InvalidRequestError(message, "stop")
    _check_breakers(sampling.dry_sequence_breakers or ())
    _check_samplers(sampling.samplers or ())
    biases = sampling.logit_bias or ()
    if len(biases) > MAX_BIASES:
        message = f"logit_bias takes at most {MAX_BIASES} tokens"
        raise InvalidRequestError(message, "logit_bias")
    for token, bias in biases:
        _check_range("logit_bias", bias, *BIAS_RANGE, of=f" of {token!r}")
    return sampling


def _check_range(name: str, value: float | None, low: float, high: float, of: str = "") -> None:
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        message = f"{name}{of} must be between {low} and {high}, got {value}"
        raise InvalidRequestError(message, name)


def _check_breakers(breakers: Sequence[str]) -> None:
    name = "dry_sequence_breakers"
    lengths = [len(b.encode("utf-8", "replace")) for b in breakers]
    fits = all(0 < n <= MAX_BREAKER_BYTES for n in lengths) and "\0" not in "".join(breakers)
    if len(breakers) > MAX_BREAKERS or not fits:
        message = (
            f"{name} takes at most {MAX_BREAKERS} texts of 1 to {MAX_BREAKER_BYTES} bytes, none "
            "with a zero byte"
        )
        raise InvalidRequestError(message, name)


def _check_samplers(samplers: Sequence[str]) -> None:
    unknown = [name for name in samplers if name not in (*SAMPLERS, *EXTRA_SAMPLERS)]
    if unknown:
        known = ", ".join((*SAMPLERS, *EXTRA_SAMPLERS))
        message = f"samplers: {unknown[0]!r} does not exist; use {known}"
        raise InvalidRequestError(message, "samplers")
    if len(set(samplers)) < len(samplers):
        raise InvalidRequestError("samplers names each sampler at most once", "samplers")


def choice_seed(seed: int | None, index: int) -> int | None:
    """The seed of one of a request's answers; the first answer uses the request's seed."""
    if seed is None or index == 0:
        return seed
    return (seed + index * _SEED_STEP) % _SEEDS
