"""One upstream: its backend, its health, and the checks that bring it back; and their group."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from msgspec import Struct

from shepherd import affinity, errors, events
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Contact
from shepherd.backends.api.http.retry import RetryPolicy, Timing
from shepherd.backends.base import Backend, Health, UpstreamState
from shepherd.events import ignore_events
from shepherd.messages import Message
from shepherd.session import Session

MAX_BUSY_SECONDS = 60.0
"""A busy upstream gets requests again after this time, whatever it asks for."""


class CheckPolicy(Struct, frozen=True):
    """Seconds: the pause after a failure, doubled up to `max_pause`, and between other checks.

    An upstream whose last answer or check is younger than `interval` is not checked; 0 = never.
    """

    first_pause: float = 0.5
    max_pause: float = 30.0
    interval: float = 10.0

    def pause(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return min(self.max_pause, self.first_pause * 2 ** min(failures - 1, 30))


class Upstream:
    """A server that may be down; `backend` is None until it was reached for the first time."""

    def __init__(
        self,
        url: str,
        opening: Callable[[], Awaitable[Backend]],
        policy: CheckPolicy,
        timing: Timing,
        when_down: Callable[[str], None],
    ) -> None:
        """`when_down` gets the URL after a second failure in a row: its cache may be lost."""
        self.url = url
        self.backend: Backend | None = None
        self.running = 0
        self.retry_at = 0.0
        """Until then it gets no requests; the time of the last success if it is up."""
        self._open_backend = opening
        self._policy = policy
        self._timing = timing
        self._when_down = when_down
        self._last_error: errors.ShepherdError | None = None
        self._last_health = Health.DOWN
        """As of the last event; `health` knows that a busy one is up again by now."""
        self._failures_in_a_row = 0
        self._prompt_failed = False
        # Since the provider was opened, for status pages.
        self._requests = self._failures = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._opening_lock = asyncio.Lock()
        self._request_failed = asyncio.Event()

    @property
    def health(self) -> Health:
        """Whether it gets requests now."""
        if self._last_health is Health.BUSY and self._timing.clock() >= self.retry_at:
            self._last_health = Health.UP
        return self._last_health

    @property
    def error(self) -> errors.ShepherdError | None:
        """The last failure, None if it is up."""
        return None if self.health is Health.UP else self._last_error

    @property
    def state(self) -> UpstreamState:
        """The health and the counts."""
        return UpstreamState(
            url=self.url,
            health=self.health,
            running=self.running,
            requests=self._requests,
            failures=self._failures,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            error=str(self.error or ""),
        )

    async def ready(self) -> Backend:
        """The backend; raises the error that keeps it from opening."""
        async with self._opening_lock:
            if self.backend is None:
                self.backend = await self._open_backend()
            return self.backend

    def begin(self) -> None:
        """Note that a request is sent."""
        self.running += 1
        self._requests += 1

    def end(self) -> None:
        """Note that a request has ended."""
        self.running -= 1

    def succeed(self, stats: events.Stats) -> None:
        """Note an answer."""
        self._prompt_tokens += stats.prompt_tokens
        self._cached_tokens += stats.cached_tokens
        self._failures_in_a_row = 0
        self._note_up()

    def fail(self, error: errors.ShepherdError, *, prompt: bool) -> None:
        """Note a request without an answer, or with half of one: no others until a check.

        After a `prompt` the check is one, too.
        """
        self._failures += 1
        self._prompt_failed = prompt
        self._note_down(error)

    def be_busy(self, error: errors.ShepherdError, seconds: float) -> None:
        """Note that it takes no requests for this time."""
        self._failures += 1
        self._last_error, self._last_health = error, Health.BUSY
        self.retry_at = self._timing.clock() + min(seconds, MAX_BUSY_SECONDS)

    async def watch(self) -> None:
        """Check the upstream after failures, and when it is silent.

        The backend of all upstreams runs it as a task, and cancels that.
        """
        while True:
            if self._last_health is Health.DOWN:
                await self._timing.sleep(max(0.0, self.retry_at - self._timing.clock()))
                # Meanwhile a request may have succeeded, or another failure prolonged the pause.
                is_down = self._last_health is Health.DOWN
                is_due = is_down and self._timing.clock() >= self.retry_at
            else:
                is_due = not await self._fails_soon() and self._last_health is Health.UP
                # only if it is silent: its last answer or check is too long ago
                is_due &= self._timing.clock() - self.retry_at >= self._policy.interval
            if is_due:
                await self.check()

    async def check(self) -> bool:
        """Whether it answers now; the health changes with the result."""
        failures = self._failures
        try:
            if self.backend is None:
                await self.ready()
            elif not await _answers(self.backend, prompt=self._prompt_failed):
                raise errors.UnreachableError(f"{self.url} does not answer.")
        except errors.ShepherdError as error:
            self._note_down(error)
            if self._failures_in_a_row > 1:  # the server may have started anew
                self._when_down(self.url)
            return False
        if failures == self._failures:  # else a request failed in the meantime, which counts more
            self._note_up()
        return True

    async def aclose(self) -> None:
        """Close the backend."""
        if self.backend is not None:
            await self.backend.aclose()

    def _note_up(self) -> None:
        """Let it get requests from now on."""
        self._prompt_failed = False
        self._last_health = Health.UP
        self._request_failed.clear()
        self.retry_at = self._timing.clock()

    def _note_down(self, error: errors.ShepherdError) -> None:
        """Let it get no requests for a pause, which grows with each failure in a row."""
        self._failures_in_a_row += 1
        self._last_error, self._last_health = error, Health.DOWN
        self.retry_at = self._timing.clock() + self._policy.pause(self._failures_in_a_row)
        self._request_failed.set()

    async def _fails_soon(self) -> bool:
        """Wait until a request fails, at most for the interval of checks."""
        self._request_failed.clear()  # that of an earlier failure, if a rate limit followed it
        try:
            async with asyncio.timeout(self._policy.interval or None):  # 0: no other checks
                return await self._request_failed.wait()
        except TimeoutError:
            return False


_CHECK = Session("", [Message.user("Hi")])


async def _answers(backend: Backend, *, prompt: bool) -> bool:
    """Whether a request gets an answer, also a `prompt`; earlier results do not count.

    A prompt costs a token and may take a place in the cache, so only one that has failed at a
    prompt gets it: it may list its models and still be stuck.
    """
    if not isinstance(backend, ApiBackend):
        return await backend.reachable()
    if not await Contact(backend.client, backend.adapter).there():
        return False
    if prompt:
        with suppress(errors.InvalidRequestError, errors.AccessError):  # a refusal is an answer
            return not (await backend.generate_from_session(_CHECK, ignore_events, 1)).broken
    return True


class UpstreamGroup(Struct, frozen=True, eq=False):
    """Upstreams with one model.

    `router` chooses an upstream by its URL. `retry` counts rounds in which all of them have failed.
    """

    upstreams: Sequence[Upstream]
    router: affinity.AffinityRouter[str]
    timing: Timing
    retry: RetryPolicy

    def take(self, prefix: affinity.Prefix, tried: Collection[Upstream]) -> Upstream:
        """The upstream for a prompt, which counts as sent; at least one must be left.

        If none of the others is up, the one that may come back first is tried.
        """
        untried = [upstream for upstream in self.upstreams if upstream not in tried]
        loads = {u.url: float(u.running) for u in untried if u.health is Health.UP}
        if loads:
            url = self.router.choose(prefix, loads).replica
            upstream = next(upstream for upstream in untried if upstream.url == url)
        else:
            upstream = min(untried, key=lambda u: u.retry_at)
        self.router.record(prefix, upstream.url)
        upstream.begin()
        return upstream
