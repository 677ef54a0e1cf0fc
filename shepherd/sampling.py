"""Sampling parameters: what a request may ask for, and the range of each."""

import math
from dataclasses import dataclass, fields, replace

from shepherd.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of one request; None leaves a parameter to the backend's settings."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_keep: int | None = None
    penalty_repeat: float | None = None
    penalty_freq: float | None = None
    penalty_present: float | None = None
    penalty_last_n: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None

    def over(self, defaults: "Sampling") -> "Sampling":
        """These parameters, with `defaults` where one is None."""
        given = {
            f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None
        }
        return replace(defaults, **given)


DEFAULT_SAMPLING = Sampling(
    temperature=0.7,
    top_p=0.9,
    top_k=40,
    min_p=0.0,
    min_keep=1,
    penalty_repeat=1.0,
    penalty_freq=0.0,
    penalty_present=0.0,
    penalty_last_n=64,
    stop=(),
)
"""What a local backend samples with when nobody says otherwise; `seed` None means random."""

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1_000_000),
    "min_p": (0.0, 1.0),
    "min_keep": (0, 1_000_000),
    "penalty_repeat": (0.01, 10.0),
    "penalty_freq": (-10.0, 10.0),
    "penalty_present": (-10.0, 10.0),
    "penalty_last_n": (-1, 1_000_000),
    "seed": (0, 2**32 - 1),
}
"""Inclusive range of each numeric parameter."""

MAX_STOP_STRINGS = 16


def check_sampling(sampling: Sampling) -> Sampling:
    """Return `sampling` unchanged; raise InvalidRequestError naming what is out of its range."""
    for name, (low, high) in RANGES.items():
        value: float | None = getattr(sampling, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise InvalidRequestError(f"{name} must be between {low} and {high}, got {value}")
    stop = sampling.stop or ()
    if len(stop) > MAX_STOP_STRINGS or any(not s for s in stop):
        raise InvalidRequestError(f"stop takes at most {MAX_STOP_STRINGS} non-empty strings")
    return sampling
