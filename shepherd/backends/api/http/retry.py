"""When a request that failed is made again."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from shepherd.backends.api.coerce import as_object, as_objects, as_text
from shepherd.backends.api.http.failures import Failure
from shepherd.errors import BusyError

T = TypeVar("T")

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s?")


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, calendar, sleep and chance, for tests to replace; all in seconds."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `tries` requests; the n-th pause is up to `first` doubled n times, up to `most`.

    A provider that asks for more patience than `patience` is not waited for. All in seconds.
    """

    tries: int = 4
    first: float = 0.5
    most: float = 8.0
    patience: float = 60.0

    def pause(self, failed: int, chance: float) -> float:
        """How long to wait after the `failed`-th failure (full jitter)."""
        return chance * min(self.most, self.first * 2 ** (failed - 1))


TellPause = Callable[[str, float], bool]
"""`tell(why, seconds)` is told of each pause; where it returns False there is none."""


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    timing: Timing,
    tell: TellPause = lambda _why, _seconds: True,
) -> T:
    """The attempt's result; after a transient Failure it is made again.

    Raises the last Failure's error, or BusyError where the provider asks to wait for too long.
    """
    failed = 0
    while True:
        try:
            return await attempt()
        except Failure as failure:
            failed += 1
            asked = failure.retry_after
            if asked is not None and asked > policy.patience and failure.transient:
                text = f"{failure} It asks to wait for {asked:.0f} s."
                busy = BusyError(text, asked)
                busy.from_provider = True
                raise busy from failure
            if not failure.transient or failed >= policy.tries:
                raise failure.error from failure
            pause = policy.pause(failed, timing.chance())
            seconds = pause if asked is None else asked + pause
            wanted = tell(str(failure), seconds)
        if wanted:
            await timing.sleep(seconds)


def retry_after(headers: Mapping[str, str], body: object, now: float) -> float | None:
    """How many seconds the provider asks us to wait; None if it does not say.

    `headers` are keyed in small letters; `now` is the time since the epoch.
    """
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "")
    for told in (_seconds(given), _date(given, now), _info(body)):
        if told is not None:
            return told
    return None


def _seconds(text: str) -> float | None:
    found = _SECONDS.fullmatch(text.strip())
    return float(found[1]) if found else None


def _date(text: str, now: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, (aware - datetime.fromtimestamp(now, UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


def _info(body: object) -> float | None:
    """Google's RetryInfo in the error's details."""
    error = as_object(as_object(body).get("error"))
    for detail in as_objects(error.get("details")):
        if delay := as_text(detail.get("retryDelay")):
            return _seconds(delay)
    return None
