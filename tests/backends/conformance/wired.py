"""A backend behind HTTP, whose upstream is a script in the vendor's language."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from shepherd.backends.api.adapter import Adapter, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.connect import adapter_for, base_url_for
from shepherd.session import Session
from tests.backends.api.support import FakeTime, options
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.backends.conformance.said import SHORT, Said, Understood
from tests.backends.conformance.subject import Room, Subject

KEY = "sk-wrong-1234567890"
PATIENCE = 30
"""Seconds in which whatever must happen has happened on the slowest machine."""


@dataclass(slots=True)
class Refuser:
    """Answers in order; refuses requests of more than `limit` tokens (0 = none), of 4 bytes each.

    `refused` counts those.
    """

    subject: "AdapterSubject"
    answers: list[Reply]
    limit: int
    refused: int = 0

    def __call__(self, request: Received) -> Reply:
        if (refusal := self.subject.refusal(request)) is not None:
            return refusal
        tokens = len(request.body) // 4
        if self.limit and tokens > self.limit:
            self.refused += 1
            return self.subject.overflow(tokens, self.limit)
        return self.answers.pop(0) if self.answers else Reply("the script is over", 501)


class AdapterSubject(Subject):
    """Speaks one vendor's language.

    `type` is the provider's, as users set it; `busy_seconds` is what `busy` asks to wait. An
    answer is not over before the event at `open_until`. `recorded` is what is cut at every byte.
    `fails_for_good`: a failure in its stream is no passing one.
    """

    type: ClassVar[str]
    model: ClassVar[str] = "m1"
    content_type: ClassVar[str] = "text/event-stream"
    busy_seconds: ClassVar[float] = 7.0
    open_until: ClassVar[int] = -1
    recorded: ClassVar[Said] = SHORT
    fails_for_good: ClassVar[bool] = False

    @abstractmethod
    def frames(self, said: Said) -> Sequence[bytes]:
        """The stream that says so, event by event; each is valid by the vendor's own types.

        The last one ends the answer.
        """

    @abstractmethod
    def overflow(self, prompt: int, limit: int) -> Reply:
        """The refusal of a prompt of so many tokens."""

    @abstractmethod
    def wrong_key(self) -> Reply:
        """The refusal of a key."""

    @abstractmethod
    def unknown_model(self) -> Reply:
        """The refusal of a model's name."""

    @abstractmethod
    def busy(self) -> Reply:
        """A rate limit, which asks to wait for `busy_seconds`."""

    @abstractmethod
    def down(self) -> Reply:
        """A failure that may pass."""

    @abstractmethod
    def failing(self) -> bytes:
        """An error in the middle of a stream."""

    @abstractmethod
    def check(self, request: Received) -> None:
        """Raises if the vendor's own client could not have sent this, or the API not take it."""

    @abstractmethod
    async def official(self, url: str) -> Understood:
        """What the vendor's own client makes of the answer at `url`."""

    def refusal(self, request: Received) -> Reply | None:
        """The answer to a request that it does not take, whatever was to be said."""
        return None

    def adapter(self, url: str) -> Adapter:
        """The adapter as a user's provider at `url` gets it."""
        return adapter_for(self.type, url, model=self.model)

    def backend_at(self, url: str, time: FakeTime | None = None, context: int = 0) -> ApiBackend:
        """A backend for a scripted upstream; it never really waits."""
        adapter = self.adapter(url)
        endpoint = Endpoint(base_url_for(self.type, url, adapter), KEY, name="acme")
        traits = ModelTraits(self.model, context, thinking=True)
        return ApiBackend(endpoint, adapter, traits, options=options(time))

    def stream(self, said: Said) -> bytes:
        """All of an answer."""
        return b"".join(self.frames(said))

    def reply(self, body: Any, **more: Any) -> Reply:
        """A streamed answer with this body."""
        return Reply(body, headers={"content-type": self.content_type}, **more)

    def answer(self, said: Said) -> Reply:
        """The answer, event by event; one that is held comes to no end."""
        frames = self.frames(said)
        return self.reply([*frames[: self.open_until], asyncio.Event()] if said.held else frames)

    def check_next(self, session: Session) -> None:
        """`check` for the request that would continue the session."""
        traits = ModelTraits(self.model, thinking=True)
        asked = self.adapter("http://127.0.0.1:1").chat(session, traits, 0)
        body = json.dumps(asked.body).encode()
        path = f"/{asked.path.lstrip('/')}".partition("?")[0]
        self.check(Received("POST", path, {}, dict(asked.headers), body))

    def check_all(self, requests: Iterable[Received]) -> None:
        """`check` for each request."""
        for request in requests:
            self.check(request)

    @asynccontextmanager
    async def opened(self, *answers: Said, limit: int = 0) -> AsyncGenerator[Room]:
        refuser = Refuser(self, [self.answer(said) for said in answers], limit)
        async with Upstream(refuser) as up:
            backend = self.backend_at(up.url)

            async def released() -> None:
                await asyncio.wait_for(up.requests[-1].hung_up.wait(), PATIENCE)

            try:
                yield Room(backend, released)
            finally:
                await backend.aclose()
        self.check_all(up.requests)
        assert bool(limit) == bool(refuser.refused)
