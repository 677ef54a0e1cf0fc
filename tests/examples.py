"""How many examples a property gets, and which.

`SHEPHERD_EXAMPLES` is `same` (by default: few, the same on each run), `search` (few new ones, by
the seed in `SHEPHERD_SEED`) or `long` (all that a test names).
"""

import os
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

T = TypeVar("T")

PROFILE = os.environ.get("SHEPHERD_EXAMPLES", "same")
SEED = os.environ.get("SHEPHERD_SEED", "0") if PROFILE == "search" else "0"
NO_CONSTANTS = Constants()
SHARE = 8
"""All but the long run try one in so many."""


def examples(count: int, minimum: int = 10) -> int:
    """How many examples to try of the `count` of a long run; at least `minimum`."""
    return count if PROFILE == "long" else max(min(count, minimum), count // SHARE)


def few(count: int, ordinary: int) -> int:
    """The `count` of a long run; `ordinary` in others, where each takes a model some time."""
    return count if PROFILE == "long" else ordinary


def some(places: Sequence[T], name: str, count: int) -> Sequence[T]:
    """`count` of the places, all of them in a long run; which ones depends on the name."""
    if PROFILE == "long" or count >= len(places):
        return places
    return sorted_sample(Random(f"{name} {SEED}"), places, count)


def sorted_sample(random: Random, places: Sequence[T], count: int) -> list[T]:
    """Places chosen at random, in their order."""
    return [places[i] for i in sorted(random.sample(range(len(places)), count))]


def register() -> None:
    """Make the profiles known to hypothesis, and take the one that the environment names."""
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    settings.register_profile("same", patient, derandomize=True, max_examples=examples(100))
    settings.register_profile("search", patient, max_examples=examples(100), print_blob=True)
    settings.register_profile("long", patient, max_examples=examples(100), derandomize=True)
    settings.load_profile(PROFILE)
    if PROFILE == "same":  # which constants are known depends on what is imported, by each worker
        providers.__dict__["_get_local_constants"] = lambda: NO_CONSTANTS
