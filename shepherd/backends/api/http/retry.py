"""Waits: retries of failed requests, and the user's own limits of requests and tokens a minute."""

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from msgspec import Struct

from shepherd import errors, events, json_text
from shepherd.backends.api.http.failures import Failure

T = TypeVar("T")

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s?")


class Timing(Struct, frozen=True):
    """Clock, calendar, sleep and jitter, which tests replace; all in seconds."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


class RetryPolicy(Struct, frozen=True):
    """At most `max_attempts` requests, with growing pauses in seconds between them.

    The n-th pause is at most `initial_delay` doubled n times, and at most `max_delay`. If a
    provider asks for a pause longer than `max_retry_after`, there is no further request.
    """

    max_attempts: int = 4
    initial_delay: float = 0.5
    max_delay: float = 8.0
    max_retry_after: float = 60.0

    def pause(self, failed: int, jitter: float) -> float:
        """The pause after failure number `failed` (full jitter)."""
        return jitter * min(self.max_delay, self.initial_delay * 2 ** (failed - 1))


TellPause = Callable[[str, float], bool]
"""Called as `tell(reason, seconds)` before each pause; there is no pause if it returns False."""


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    timing: Timing,
    tell: TellPause = lambda _why, _seconds: True,
) -> T:
    """The result of an attempt; a transient Failure leads to another attempt, after `tell`.

    Raises the last Failure's error, or BusyError if the provider asks for too long a wait.
    """
    failed = 0
    while True:
        try:
            return await attempt()
        except Failure as failure:
            failed += 1
            delay = failure.retry_after
            # the caller gets the error at once: nobody wants to wait so long for an answer
            if delay is not None and delay > policy.max_retry_after and failure.transient:
                text = f"{failure} It asks to wait for {delay:.0f} s."
                busy = errors.BusyError(text, delay)
                busy.from_provider = True
                raise busy from failure
            if not failure.transient or failed >= policy.max_attempts:
                raise failure.error from failure
            pause = policy.pause(failed, timing.jitter())
            seconds = pause if delay is None else delay + pause
            goes_on = tell(str(failure), seconds)
        if goes_on:  # else the next attempt finds out that it was cancelled, and says so
            await timing.sleep(seconds)


def retry_after(headers: Mapping[str, str], body: object, now: float) -> float | None:
    """The pause in seconds that the provider asks for; None if it does not ask for one.

    `headers` have lower-case keys; `now` is the time since the epoch.
    """
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after", "")
    for seconds in (_seconds(header), _until_date(header, now), _google_delay(body)):
        if seconds is not None:
            return seconds
    return None


def _seconds(text: str) -> float | None:
    """The number in "1.5" or "1.5s"; None for another text."""
    match = _SECONDS.fullmatch(text.strip())
    return float(match[1]) if match else None


def _until_date(text: str, now: float) -> float | None:
    """The seconds until a date as HTTP writes it; None for another text."""
    try:
        date = parsedate_to_datetime(text)
        # "-0000", a time without a zone, is UTC too
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, (aware - datetime.fromtimestamp(now, UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


def _google_delay(body: object) -> float | None:
    """The seconds in Google's RetryInfo, which is one of the error's details."""
    error = json_text.as_object(json_text.as_object(body).get("error"))
    for detail in json_text.as_objects(error.get("details")):
        if delay := json_text.as_text(detail.get("retryDelay")):
            return _seconds(delay)
    return None


MIN_REPORTED_SECONDS = 2.0
"""Pauses of at least this many seconds are reported to the user."""


class Gate(Struct):
    """The callback of one generation over its attempts.

    Passes events on until the callback has returned False; from then on it is `closed`.
    """

    callback: events.EventCallback
    closed: bool = False

    def __call__(self, event: events.Event) -> bool:
        if not self.closed:
            self.closed = not self.callback(event)
        return not self.closed

    def tell_pause(self, why: str, seconds: float) -> bool:
        """Report a pause before the next attempt; False if the callback has cancelled."""
        if seconds >= MIN_REPORTED_SECONDS:
            text = f"{why} Trying again in {seconds:.0f} s."
            self(events.Notice(text, events.Topic.NOTICE))
        return not self.closed

    def tell_wait(self, seconds: float) -> None:
        """Report that a request waits for a limit of our own."""
        if seconds >= MIN_REPORTED_SECONDS:
            text = f"Waiting {seconds:.0f} s: no more requests or tokens a minute are set for it."
            self(events.Notice(text, events.Topic.NOTICE))


WINDOW = 60.0
"""Both limits count over this many seconds."""


class RateLimits(Struct, frozen=True):
    """Requests and tokens in a minute; 0 = no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    def allow(self, requests: int, tokens: int) -> bool:
        """Whether one more request may follow these requests; `tokens` include its own."""
        if self.requests_per_minute and requests >= self.requests_per_minute:
            return False
        return not self.tokens_per_minute or tokens <= self.tokens_per_minute


class _Spent(Struct, frozen=True):
    """A request, or the tokens of an answer, at this time."""

    at: float
    requests: int
    tokens: int


class RateLimiter:
    """Admits requests in order, each as soon as the limits allow it."""

    def __init__(self, limits: RateLimits, timing: Timing) -> None:
        self._limits = limits
        self._timing = timing
        self._spent: deque[_Spent] = deque()
        """What counts for the limits now, the oldest first."""
        self._next_in_line = asyncio.Lock()

    async def admit(self, tokens: int, tell: Callable[[float], None] = lambda _: None) -> None:
        """Wait until a request of this many tokens may be sent.

        A request larger than the limit of a minute is sent after a minute without requests.

        `tell` is called once, with the seconds of the first wait.
        """
        if not (self._limits.requests_per_minute or self._limits.tokens_per_minute):
            return
        async with self._next_in_line:
            is_reported = False
            while (seconds := self._seconds_to_wait(tokens)) > 0:
                if not is_reported:
                    tell(seconds)
                is_reported = True
                await self._timing.sleep(seconds)
            self._spent.append(_Spent(self._timing.clock(), 1, tokens))

    def add_spent(self, tokens: int) -> None:
        """Count tokens that `admit` did not count: those of the answer."""
        if self._limits.tokens_per_minute and tokens > 0:
            self._spent.append(_Spent(self._timing.clock(), 0, tokens))

    def _seconds_to_wait(self, tokens: int) -> float:
        """The seconds until a request of this many tokens may pass, or until the next check."""
        now = self._timing.clock()
        while self._spent and self._spent[0].at <= now - WINDOW:
            self._spent.popleft()
        if not self._spent:  # also a request above the limit passes, else it would wait for ever
            return 0.0
        requests = sum(spent.requests for spent in self._spent)
        used = sum(spent.tokens for spent in self._spent)
        if self._limits.allow(requests, used + tokens):
            return 0.0
        # the oldest one is forgotten then; 0.0 would mean that the request may pass
        return max(0.001, self._spent[0].at + WINDOW - now)
