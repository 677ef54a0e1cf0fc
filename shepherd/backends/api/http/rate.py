"""The user's own limits of requests and tokens a minute."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

WINDOW = 60.0
"""Both limits count over this many seconds."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Requests and tokens in a minute; 0 = no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    def allow(self, requests: int, tokens: int) -> bool:
        """Whether one more request may follow these requests; `tokens` include its own."""
        if self.requests_per_minute and requests >= self.requests_per_minute:
            return False
        return not self.tokens_per_minute or tokens <= self.tokens_per_minute


@dataclass(frozen=True, slots=True)
class _Spent:
    at: float
    requests: int
    tokens: int


class RateLimiter:
    """Admits requests in order, each as soon as the limits allow it."""

    def __init__(
        self,
        limits: RateLimits,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` and `sleep` are in seconds."""
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._spent: deque[_Spent] = deque()
        self._turn = asyncio.Lock()

    async def admit(self, tokens: int, tell: Callable[[float], None] = lambda _: None) -> None:
        """Wait until a request of this many tokens may be sent.

        A request larger than the limit of a minute is sent after a minute without requests.

        `tell` is called once, with the seconds of the first wait.
        """
        if not (self._limits.requests_per_minute or self._limits.tokens_per_minute):
            return
        async with self._turn:
            reported = False
            while (wait := self._wait(tokens)) > 0:
                if not reported:
                    tell(wait)
                reported = True
                await self._sleep(wait)
            self._spent.append(_Spent(self._clock(), 1, tokens))

    def spent(self, tokens: int) -> None:
        """Count tokens that `admit` did not count: those of the answer."""
        if self._limits.tokens_per_minute and tokens > 0:
            self._spent.append(_Spent(self._clock(), 0, tokens))

    def _wait(self, tokens: int) -> float:
        """Seconds until the next check."""
        now = self._clock()
        while self._spent and self._spent[0].at <= now - WINDOW:
            self._spent.popleft()
        if not self._spent:
            return 0.0
        requests, used = (sum(s.requests for s in self._spent), sum(s.tokens for s in self._spent))
        if not self._limits.allow(requests, used + tokens):
            return max(0.001, self._spent[0].at + WINDOW - now)
        return 0.0
