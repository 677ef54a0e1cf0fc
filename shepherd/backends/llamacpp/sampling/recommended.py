"""What a model's file recommends for sampling."""

from collections.abc import Callable
from typing import Any

from shepherd.errors import InvalidRequestError
from shepherd.sampling import Sampling, check_sampling

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


def recommended(metadata: Callable[[str], str]) -> Sampling:
    """The parameters in a file's header, which `metadata` reads; a value that can't be is none."""
    found: dict[str, Any] = {}
    for key, (name, kind) in KEYS.items():
        text = metadata(f"general.sampling.{key}")
        try:
            told: dict[str, Any] = {name: kind(text)}
            check_sampling(Sampling(**told))
        except (ValueError, InvalidRequestError):
            continue
        found |= told
    return Sampling(**found)
