"""Keeps keys to their limits."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from shepherd.server.access.key import ApiKey, KeyLimits
from shepherd.server.access.windows import SlidingWindow
from shepherd.server.errors import ApiError

MINUTE, DAY = 60, 86_400
PERIODS = MINUTE, DAY


class Resource(StrEnum):
    """What limits count."""

    REQUESTS = "requests"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a key, and how much was used of it."""

    resource: Resource
    amount: int
    window: SlidingWindow


class ProcessClock:
    """Seconds since 1970 that never go back: those at the start, and the time since then."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._start + time.monotonic()


class Limiter:
    """The use of each key in the last minute and the last 24 hours; for one thread."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or ProcessClock()
        self._windows: dict[tuple[str, Resource, int], SlidingWindow] = {}

    def restore(self, key: str, resource: Resource, amount: int, moment: float) -> None:
        """Count what was used in an earlier process; a later time than now means now."""
        self.window(key, resource, DAY).add(amount, min(moment, self.clock()))

    def window(self, key: str, resource: Resource, seconds: int) -> SlidingWindow:
        """What the key called `key` uses in a period."""
        place = key, resource, seconds
        if place not in self._windows:
            self._windows[place] = SlidingWindow(seconds)
        return self._windows[place]

    def count_request(self, key: ApiKey) -> None:
        """Count a request; raises ApiError (429) if the limit is reached."""
        self._reserve(key, Resource.REQUESTS, 1)
        self.settle(key.name, Resource.REQUESTS, 1, 1)

    def reserve_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """Hold `wished` tokens, or as many as are left, but at least `needed`.

        Raises ApiError (429) if they are not left.
        """
        now = self.clock()
        limits = self._limits(key, Resource.TOKENS)
        left = [limit.window.free(limit.amount, now) for limit in limits]
        amount = max(needed, min([wished, *left]))
        self._reserve(key, Resource.TOKENS, amount)
        return amount

    def settle_tokens(self, key: ApiKey, reserved: int, used: int) -> None:
        """Replace held tokens by those that were used."""
        self.settle(key.name, Resource.TOKENS, reserved, used)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the limits, as OpenAI's and as Anthropic's clients read it."""
        now = self.clock()
        headers: dict[str, str] = {}
        for resource in Resource:
            limits = self._limits(key, resource)
            if limits:
                tight = min(limits, key=lambda limit: limit.window.free(limit.amount, now))
                headers |= _headers(tight, now)
        return headers

    def _reserve(self, key: ApiKey, resource: Resource, amount: int) -> None:
        now = self.clock()
        for limit in self._limits(key, resource):
            if amount > limit.window.free(limit.amount, now):
                raise _refusal(key, limit, amount, now)
        for period in PERIODS:
            self.window(key.name, resource, period).reserve(amount)

    def settle(self, key: str, resource: Resource, reserved: int, used: int) -> None:
        """Replace what is held for the key called `key` by what was used."""
        now = self.clock()
        for period in PERIODS:
            self.window(key, resource, period).settle(reserved, used, now)

    def _limits(self, key: ApiKey, resource: Resource) -> list[Limit]:
        return [
            Limit(resource, amount, self.window(key.name, resource, period))
            for period, amount in _amounts(key.limits, resource)
            if amount is not None
        ]


def _amounts(limits: KeyLimits, resource: Resource) -> Iterator[tuple[int, int | None]]:
    if resource is Resource.REQUESTS:
        yield from ((MINUTE, limits.requests_per_minute), (DAY, limits.requests_per_day))
    else:
        yield from ((MINUTE, limits.tokens_per_minute), (DAY, limits.tokens_per_day))


HEADER_NAMES = (
    *(
        name
        for resource in Resource
        for part in ("limit", "remaining", "reset")
        for name in (f"x-ratelimit-{part}-{resource}", f"anthropic-ratelimit-{resource}-{part}")
    ),
    "Retry-After",
)
"""All headers about limits."""


def _headers(limit: Limit, now: float) -> dict[str, str]:
    free = limit.window.free(limit.amount, now)
    seconds = limit.window.reset(now)
    moment = datetime.fromtimestamp(now, UTC) + timedelta(seconds=math.ceil(seconds))
    return {
        f"x-ratelimit-limit-{limit.resource}": str(limit.amount),
        f"x-ratelimit-remaining-{limit.resource}": str(free),
        f"x-ratelimit-reset-{limit.resource}": f"{math.ceil(seconds)}s",
        f"anthropic-ratelimit-{limit.resource}-limit": str(limit.amount),
        f"anthropic-ratelimit-{limit.resource}-remaining": str(free),
        f"anthropic-ratelimit-{limit.resource}-reset": moment.isoformat(timespec="seconds"),
    }


def _refusal(key: ApiKey, limit: Limit, amount: int, now: float) -> ApiError:
    period = "minute" if limit.window.seconds == MINUTE else "day"
    seconds = max(1, math.ceil(limit.window.wait(amount, limit.amount, now)))
    free = limit.window.free(limit.amount, now)
    message = (
        f"Rate limit of the API key {key.name} reached for {limit.resource} per {period}: "
        f"limit {limit.amount}, left {free}, needed {amount}. Try again in {seconds} s."
    )
    headers: Mapping[str, str] = _headers(limit, now) | {"Retry-After": str(seconds)}
    if amount > limit.amount:
        headers = {**headers, "x-should-retry": "false"}
        message += " This request never fits; a smaller max_tokens may help."
    return ApiError(429, message, "rate_limit_exceeded", headers=dict(headers))
