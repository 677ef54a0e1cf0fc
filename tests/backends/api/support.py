"""What the tests of the API backends share."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shepherd.backends.api.adapter import Adapter, ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import ClientOptions, Endpoint
from shepherd.backends.api.http.retry import RetryPolicy, Timing
from shepherd.events import CallbackEvent, Event
from shepherd.messages import Message, ToolSpec
from shepherd.session import Session
from tests.backends.api.plain_adapter import PlainAdapter
from tests.backends.api.upstream import Upstream
from tests.flat_events import TEXT_KINDS, flat

LIST = ToolSpec(
    "list_directory",
    "List a directory.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
WRITE = ToolSpec(
    "write_file",
    "Write a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
)


@dataclass
class Events:
    """A callback that keeps what it is told and says no at the event number `stop_at`."""

    stop_at: int = -1
    all: list[tuple[CallbackEvent, str, str, str]] = field(
        default_factory=list[tuple[CallbackEvent, str, str, str]]
    )

    def __call__(self, event: Event) -> bool:
        self.all.append(flat(event))
        return len(self.all) - 1 != self.stop_at

    def of(self, *kinds: CallbackEvent) -> list[str]:
        return [content for event, content, _, _ in self.all if event in kinds]

    def joined(self) -> list[tuple[CallbackEvent, str, str]]:
        """Text, neighbours of a kind as one, then the rest without statistics and ids."""
        joined: list[tuple[CallbackEvent, str, str]] = []
        for event, content, name, _ in self.all:
            if event is CallbackEvent.STATS:
                continue
            if event in TEXT_KINDS and joined and joined[-1][::2] == (event, name):
                joined[-1] = (event, joined[-1][1] + content, name)
            else:
                joined.append((event, content, name))
        return joined


@dataclass
class FakeTime:
    """Time that only passes when somebody sleeps; `slept` are the pauses."""

    now: float = 1_000_000.0
    slept: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def timing(self) -> Timing:
        return Timing(lambda: self.now, lambda: self.now, self.sleep, lambda: 1.0)


def options(time: FakeTime | None = None, **policy: Any) -> ClientOptions:
    return ClientOptions(RetryPolicy(**policy), timing=(time or FakeTime()).timing())


def backend_at(
    up: Upstream, adapter: Adapter | None = None, time: FakeTime | None = None, **traits: Any
) -> ApiBackend:
    """A backend for the scripted upstream that never really waits."""
    endpoint = Endpoint(up.url, "secret-key-1234", {"x-more": "y"}, "acme")
    model = replace(ModelTraits("m1", context_size=4096), **traits)
    return ApiBackend(endpoint, adapter or PlainAdapter(), model, options=options(time))


def asking(*tools: ToolSpec, text: str = "hi") -> Session:
    return Session(messages=[Message.user(text)], tools=list(tools))
