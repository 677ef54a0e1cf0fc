"""Sampling parameters of a request, and all that is known of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

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


class Parameter(Struct, frozen=True):
    """A number of `Sampling`: its inclusive range, its default in local backends, and its names.

    `help` describes it in the settings and in requests, which call it by one of `names`; `llamacpp`
    is its name in llama.cpp's reports. Both are the field's name, unless they are set here.
    """

    low: float
    high: float
    default: Any
    help: str
    names: tuple[str, ...] = ()
    llamacpp: str = ""

    @property
    def kind(self) -> type[int] | type[float]:
        """The type of its values."""
        return type(self.low)


class Sampling(Struct, frozen=True):
    """Sampling parameters of one request; None leaves a parameter to the backend's settings.

    `samplers` are applied in their order. `logit_bias` pairs a token's number, or a text, with a
    number that is added to its logit. `logprobs` requests log probabilities with this number of
    alternatives: the model's own, or, with `logprobs_after`, those after the samplers. A parameter
    is added here: settings, requests, checks and reports follow.
    """

    temperature: Annotated[
        float | None, Parameter(0.0, 10.0, 0.7, "Randomness; 0 = always the likeliest token.")
    ] = None
    top_p: Annotated[
        float | None,
        Parameter(0.0, 1.0, 0.9, "Keep the likeliest tokens up to this probability; 1 = off."),
    ] = None
    top_k: Annotated[
        int | None, Parameter(0, 1_000_000, 40, "Keep the K likeliest tokens; 0 = all.")
    ] = None
    min_p: Annotated[
        float | None,
        Parameter(0.0, 1.0, 0.0, "Drop tokens below this share of the likeliest; 0 = off."),
    ] = None
    min_keep: Annotated[
        int | None, Parameter(0, 1_000_000, 1, "Minimum tokens that top_p and min_p keep.")
    ] = None
    typical_p: Annotated[
        float | None,
        Parameter(
            0.0,
            1.0,
            1.0,
            "Keep the most typical tokens up to this probability; 1 = off.",
            ("typical_p", "typ_p"),
        ),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        Parameter(
            -1.0, 100.0, 0.0, "Drop tokens this many deviations below the best logit; 0 = off."
        ),
    ] = None
    xtc_probability: Annotated[
        float | None, Parameter(0.0, 1.0, 0.0, "How often XTC drops the likeliest tokens; 0 = off.")
    ] = None
    xtc_threshold: Annotated[
        float | None,
        Parameter(
            0.0, 1.0, 0.1, "XTC drops tokens above this probability, except one; > 0.5 = off."
        ),
    ] = None
    dynatemp_range: Annotated[
        float | None,
        Parameter(0.0, 10.0, 0.0, "Range in which the entropy moves the temperature; 0 = off."),
    ] = None
    dynatemp_exponent: Annotated[
        float | None, Parameter(0.0, 10.0, 1.0, "Dynamic temperature: the power of the entropy.")
    ] = None
    penalty_repeat: Annotated[
        float | None,
        Parameter(
            0.01,
            10.0,
            1.0,
            "Repetition penalty; 1 = off.",
            ("repetition_penalty", "repeat_penalty"),
            "repeat_penalty",
        ),
    ] = None
    penalty_freq: Annotated[
        float | None,
        Parameter(-10.0, 10.0, 0.0, "Frequency penalty; 0 = off.", ("frequency_penalty",)),
    ] = None
    penalty_present: Annotated[
        float | None,
        Parameter(-10.0, 10.0, 0.0, "Presence penalty; 0 = off.", ("presence_penalty",)),
    ] = None
    penalty_last_n: Annotated[
        int | None,
        Parameter(
            -1,
            1_000_000,
            64,
            "Last tokens that penalties count; -1 = the context.",
            ("repeat_last_n",),
        ),
    ] = None
    dry_multiplier: Annotated[
        float | None,
        Parameter(0.0, 100.0, 0.0, "Strength of DRY, against repeated phrases; 0 = off."),
    ] = None
    dry_base: Annotated[
        float | None, Parameter(1.0, 100.0, 1.75, "Growth of DRY with each repeated token.")
    ] = None
    dry_allowed_length: Annotated[
        int | None, Parameter(0, 1_000_000, 2, "Repeated tokens that DRY allows.")
    ] = None
    dry_penalty_last_n: Annotated[
        int | None, Parameter(-1, 1_000_000, -1, "Last tokens that DRY checks; -1 = the context.")
    ] = None
    dry_sequence_breakers: tuple[str, ...] | None = None
    mirostat: Annotated[
        int | None, Parameter(0, 2, 0, "Mirostat 1 or 2, instead of the other samplers; 0 = off.")
    ] = None
    mirostat_tau: Annotated[
        float | None, Parameter(0.0, 100.0, 5.0, "Mirostat: the target surprise.")
    ] = None
    mirostat_eta: Annotated[
        float | None, Parameter(0.0, 10.0, 0.1, "Mirostat: how fast it learns.")
    ] = None
    samplers: tuple[str, ...] | None = None
    seed: Annotated[
        int | None, Parameter(0, 2**32 - 1, None, "Random seed; unset = a new one each time.")
    ] = None
    stop: tuple[str, ...] | None = None
    logit_bias: tuple[tuple[int | str, float], ...] | None = None
    ignore_eos: bool | None = None
    logprobs: Annotated[
        int | None, Parameter(0, 20, None, "Tell so many of the likeliest tokens too.")
    ] = None
    logprobs_after: bool | None = None

    def over(self, defaults: "Sampling") -> "Sampling":
        """These parameters, with `defaults` where one is None."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        own = {name: value for name, value in values.items() if value is not None}
        return replace(defaults, **own)


def _parameters() -> Iterator[tuple[str, Parameter]]:
    """The parameters that stand in the annotations of `Sampling`, with their names filled in."""
    for name, hint in get_type_hints(Sampling, include_extras=True).items():
        for parameter in getattr(hint, "__metadata__", ()):
            names = parameter.names or (name,)
            yield name, replace(parameter, names=names, llamacpp=parameter.llamacpp or names[0])


PARAMETERS: Mapping[str, Parameter] = dict(_parameters())
"""The numbers of `Sampling` by its fields."""

DEFAULT_SAMPLING = Sampling(
    **{name: parameter.default for name, parameter in PARAMETERS.items()},
    dry_sequence_breakers=("\n", ":", '"', "*"),
    samplers=SAMPLERS,
    stop=(),
)
"""The default sampling of local backends; `seed` None means random."""

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
    for name, parameter in PARAMETERS.items():
        _check_range(name, getattr(sampling, name), parameter.low, parameter.high)
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
    """Raise InvalidRequestError for a number out of its range; `of` says what it belongs to."""
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        message = f"{name}{of} must be between {low} and {high}, got {value}"
        raise InvalidRequestError(message, name)


def _check_breakers(breakers: Sequence[str]) -> None:
    """Raise InvalidRequestError for texts that llama.cpp would cut off."""
    name = "dry_sequence_breakers"
    lengths = [len(breaker.encode("utf-8", "replace")) for breaker in breakers]
    fit = all(0 < length <= MAX_BREAKER_BYTES for length in lengths)
    if len(breakers) > MAX_BREAKERS or not fit or "\0" in "".join(breakers):
        message = (
            f"{name} takes at most {MAX_BREAKERS} texts of 1 to {MAX_BREAKER_BYTES} bytes, none "
            "with a zero byte"
        )
        raise InvalidRequestError(message, name)


def _check_samplers(samplers: Sequence[str]) -> None:
    """Raise InvalidRequestError for an unknown sampler, and for one that stands there twice."""
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


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """A token's bytes, which may be a part of a character, and its natural log probability.

    `id` is the token's number, -1 if it is unknown.
    """

    piece: bytes
    logprob: float
    id: int = field(default=-1, kw_only=True, compare=False)

    @property
    def text(self) -> str:
        """The bytes as text; a part of a character becomes the replacement character."""
        return self.piece.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprob(TokenProbability):
    """A token of an answer, and the most likely tokens at its position, best first."""

    top: tuple[TokenProbability, ...] = ()
