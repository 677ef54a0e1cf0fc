"""What a judge says, or why it said nothing."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What one judge says.

    `applicable` are its tests of what Shepherd serves; `left_out` says of the others what they need
    and why they do not apply. `failures` names each test that failed, with what was wrong.
    `details` are lines about parts of the judge.
    """

    judge: str
    version: str
    passed: int
    applicable: int
    left_out: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


def counted(reasons: Counter[str]) -> tuple[str, ...]:
    """Reasons with how many tests each is that of, the most frequent first."""
    return tuple(f"{reason} ({count})" for reason, count in reasons.most_common())


class Skipped(Exception):  # noqa: N818 - nothing went wrong
    """A judge can't run here; the text says what it needs."""
