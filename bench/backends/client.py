"""The base of measured clients, and ours."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from bench.backends.asked import KEY, MODEL, SYSTEM, TEXTS, tools


@dataclass(frozen=True, slots=True)
class Seen:
    """The received data.

    It has each piece of text with its time in nanoseconds of the monotonic clock, and the name and
    arguments of each call.
    """

    texts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])


class Client(ABC):
    """A client for one upstream; its packages are imported when it is created."""

    @abstractmethod
    async def ask(self, seen: Seen) -> None:
        """Make the call and read the whole answer."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""


class Ours(Client):
    """ApiBackend, with a callback that only notes the time."""

    def __init__(self, adapter: str, url: str) -> None:
        from shepherd.backends.api.adapter import ModelTraits
        from shepherd.backends.api.backend import ApiBackend
        from shepherd.backends.api.http.client import Endpoint
        from shepherd.backends.connect import adapter_for, base_url_for
        from shepherd.events import Text, Thinking
        from shepherd.messages import Message, ToolSpec
        from shepherd.session import Session

        self._kinds = (Text, Thinking)
        kind = "openai" if adapter == "openai-chat" else adapter
        address = f"{url}/v1" if adapter.startswith("openai") else url
        spoken = adapter_for(kind, address)
        endpoint = Endpoint(base_url_for(kind, address, spoken), KEY)
        self._backend = ApiBackend(endpoint, spoken, ModelTraits(MODEL, context_size=32768))
        question, answer, further = TEXTS
        history = [Message.user(question), Message.assistant(answer), Message.user(further)]
        self._session = Session(SYSTEM, history, [ToolSpec(**tool) for tool in tools("parameters")])

    async def ask(self, seen: Seen) -> None:
        def callback(event: object) -> bool:
            if isinstance(event, self._kinds):
                seen.texts.append((monotonic_ns(), event.text))
            return True

        generation = await self._backend.generate_from_session(self._session, callback)
        seen.calls.extend((call.name, call.arguments) for call in generation.message.tool_calls)

    async def aclose(self) -> None:
        await self._backend.aclose()
