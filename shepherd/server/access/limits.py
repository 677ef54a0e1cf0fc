"""Keeps keys to their limits: what was used in sliding windows, and what is held meanwhile."""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from shepherd.server.access.key import ApiKey
from shepherd.server.errors import ApiError

SLOTS = 60
"""The parts of a period; an amount counts until its whole part is older than the period."""


class SlidingWindow:
    """Amounts within the last `seconds`; with `limit`, no period of that length holds more.

    Reserved amounts count until they are settled. Times are seconds of a clock of the caller; one
    that goes backwards is taken to stand still.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slot_seconds = seconds / SLOTS
        self._used_by_slot: deque[tuple[int, int]] = deque()  # pairs of a slot and an amount
        self._used_amount = 0
        self._reserved_amount = 0
        self._latest_time = 0.0

    def amounts(self) -> Sequence[tuple[int, int]]:
        """The parts of the period with what was used in them."""
        return tuple(self._used_by_slot)

    def restore(self, amounts: Iterable[tuple[int, int]], latest: float) -> None:
        """Replace what was used by earlier `amounts`, up to a time."""
        self._used_by_slot = deque((slot, used) for slot, used in amounts)
        self._used_amount = sum(amount for _, amount in self._used_by_slot)
        self._latest_time = latest

    def free(self, limit: int, now: float) -> int:
        """How much of the limit is left, at least 0."""
        self._expire(now)
        return max(0, limit - self._used_amount - self._reserved_amount)

    def reserve(self, amount: int) -> None:
        """Hold an amount until it is settled."""
        self._reserved_amount += amount

    def settle(self, reserved: int, amount: int, now: float) -> None:
        """Replace a reservation by what was used."""
        self._reserved_amount -= reserved
        self.add(amount, now)

    def add(self, amount: int, now: float) -> None:
        """Count an amount in the newest part of the period."""
        self._expire(now)
        slot = int(self._latest_time // self._slot_seconds)  # one number for each part of time
        if self._used_by_slot and self._used_by_slot[-1][0] >= slot:
            slot, earlier = self._used_by_slot.pop()
            self._used_by_slot.append((slot, earlier + amount))
        elif amount:  # a part of time in which nothing was used needs no entry
            self._used_by_slot.append((slot, amount))
        self._used_amount += amount

    def wait(self, amount: int, limit: int, now: float) -> float:
        """The seconds until an amount is free; the whole period if that is not known."""
        missing = amount - self.free(limit, now)
        if missing <= 0:
            return 0.0
        for slot, used in self._used_by_slot:  # the oldest is free first
            missing -= used
            if missing <= 0:
                return self._end_of(slot) - self._latest_time
        return self.seconds  # what is reserved has no end yet, or the limit is below the amount

    def reset(self, now: float) -> float:
        """The seconds until all that was used is free again."""
        self._expire(now)
        if not self._used_by_slot:
            return 0.0
        newest_slot, _used = self._used_by_slot[-1]
        # not `now`, which is too early after the clock was set back
        return self._end_of(newest_slot) - self._latest_time

    def _end_of(self, slot: int) -> float:
        """The time at which what was used in this part counts no more."""
        return (slot + 1) * self._slot_seconds + self.seconds

    def _expire(self, now: float) -> None:
        """Forget what was used before the period that ends now; no time goes back."""
        self._latest_time = max(self._latest_time, now)
        while self._used_by_slot and self._end_of(self._used_by_slot[0][0]) <= self._latest_time:
            self._used_amount -= self._used_by_slot.popleft()[1]


MINUTE, DAY = 60, 86_400

PERIODS = MINUTE, DAY


class Resource(StrEnum):
    """What limits count."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class Limit(Struct, frozen=True):
    """One limit of a key, and how much was used of it."""

    resource: Resource
    amount: int
    window: SlidingWindow


class Limiter:
    """The use of one key in the last minute and the last 24 hours; for one thread.

    Its clock begins with a Unix time, and never goes back.
    """

    def __init__(self, now: float) -> None:
        self._clock_offset = now - time.monotonic()
        self.windows = {
            (resource, period): SlidingWindow(period) for resource in Resource for period in PERIODS
        }

    def count_request(self, key: ApiKey) -> None:
        """Count a request; raises ApiError (429) if the limit is reached."""
        self._check(key, Resource.REQUESTS, 1)
        self.settle(Resource.REQUESTS, reserved=0, used=1)

    def allows_request(self, key: ApiKey) -> bool:
        """Whether a further request is within the limits."""
        limits = self._limits(key, Resource.REQUESTS)
        return all(limit.window.free(limit.amount, self._now()) for limit in limits)

    def grant_tokens(self, key: ApiKey, needed: int, wished: int) -> int:
        """`wished` tokens, or as many as are left, but at least `needed`.

        Raises ApiError (429) if they are not left.
        """
        now = self._now()
        limits = self._limits(key, Resource.TOKENS)
        left = [limit.window.free(limit.amount, now) for limit in limits]
        amount = max(needed, min([wished, *left]))
        self._check(key, Resource.TOKENS, amount)  # less than `needed` may be left
        return amount

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the limits, as OpenAI's and as Anthropic's clients read it."""
        now = self._now()
        headers: dict[str, str] = {}
        for resource in Resource:
            limits = self._limits(key, resource)
            if limits:
                # the headers have room for one limit: the one that a request meets first
                tightest = min(limits, key=lambda limit: limit.window.free(limit.amount, now))
                headers |= _headers(tightest, now)
        return headers

    def _now(self) -> float:
        return self._clock_offset + time.monotonic()

    def _check(self, key: ApiKey, resource: Resource, amount: int) -> None:
        """Raise ApiError (429) if a limit has less than the amount left."""
        now = self._now()
        for limit in self._limits(key, resource):
            if amount > limit.window.free(limit.amount, now):
                raise _refusal(key, limit, amount, now)

    def reserve(self, tokens: int) -> None:
        """Hold tokens; a negative number gives them back."""
        for period in PERIODS:
            self.windows[Resource.TOKENS, period].reserve(tokens)

    def settle(self, resource: Resource, reserved: int, used: int, age: float = 0.0) -> None:
        """Replace what is held by what was used, `age` seconds ago."""
        now = self._now()
        for period in PERIODS:
            self.windows[resource, period].settle(reserved, used if age < period else 0, now)

    def _limits(self, key: ApiKey, resource: Resource) -> list[Limit]:
        """The limits that a key has, with their windows: none, per minute, per day, or both."""
        limits = key.limits
        amounts = limits.tokens_per_minute, limits.tokens_per_day
        if resource is Resource.REQUESTS:
            amounts = limits.requests_per_minute, limits.requests_per_day
        return [
            Limit(resource, amount, self.windows[resource, period])
            for period, amount in zip(PERIODS, amounts, strict=True)
            if amount is not None
        ]


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
    """The state of one limit; OpenAI's clients read the end in seconds, Anthropic's as a time."""
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
    """The error for a request that needs more than a limit has left."""
    period = "minute" if limit.window.seconds == MINUTE else "day"
    seconds = max(1, math.ceil(limit.window.wait(amount, limit.amount, now)))
    free = limit.window.free(limit.amount, now)
    message = (
        f"Rate limit of the API key {key.name} reached for {limit.resource} per {period}: "
        f"limit {limit.amount}, left {free}, needed {amount}. Try again in {seconds} s."
    )
    headers = _headers(limit, now) | {"Retry-After": str(seconds)}
    if amount > limit.amount:  # more than the whole limit, so waiting does not help
        headers["x-should-retry"] = "false"
        message += " This request never fits; a smaller max_tokens may help."
    return ApiError(429, message, "rate_limit_exceeded", headers=headers)
