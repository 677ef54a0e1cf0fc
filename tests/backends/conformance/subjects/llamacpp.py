"""A model in this process, held by grammars to what it is to say."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from msgspec.structs import replace

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.events import EventCallback
from shepherd.messages import Message, ToolSpec
from shepherd.session import OutputFormat, Session, ToolChoice
from tests.backends.conformance.language import compact
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Room, Subject
from tests.backends.llamacpp.support import loaded

_NO_STREAM = "the model is in this process: there is no connection and no stream"


class Steered(Backend):
    """Holds a model to what it is to say next; a held answer goes on and on.

    Only requests that got past the prompt count as answered.
    """

    def __init__(self, model: Backend, answers: Iterator[Said]) -> None:
        self.model = model
        self.answers = answers
        self._next: Said | None = None

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        said = self._next or next(self.answers)
        self._next = said
        return await self.model.prefill_session(steered(session, said), callback)

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self._next = None
        return await self.model.generate_from_prefilled(prefilled, callback, max_tokens)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self.model.count_message_tokens(session, message)

    async def aclose(self) -> None:
        """The model is closed by who loaded it."""


def steered(session: Session, said: Said) -> Session:
    """The session with a format that leaves one answer only."""
    if not said.calls:
        tail = ' [a-z]{3} " "' if said.held else ""
        grammar = f"root ::= {compact(said.content)}{f' ({tail})*' if tail else ''}"
        return replace(session, output_format=OutputFormat(grammar=grammar), tools=[])
    name, arguments = said.calls[0]
    properties: dict[str, Any] = {key: {"const": value} for key, value in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    tools = [ToolSpec(name, "A tool.", schema)]
    return replace(session, tools=tools, tool_choice=ToolChoice(name))


class LlamaCppSubject(Subject):
    """The built-in model through the whole engine."""

    name = "llamacpp"
    lacks: ClassVar = {
        Scenario.THINKING: "no grammar makes a model think; see tests/backends/output",
        Scenario.CALLS: "whether it calls twice is the model's choice; see tests/backends/output",
        Scenario.RETRY: _NO_STREAM,
        Scenario.MALFORMED: _NO_STREAM,
        Scenario.CUT: _NO_STREAM,
        Scenario.KEY: "a file asks for no key",
        Scenario.MODEL: "a missing file is ModelLoadError; see tests/backends/llamacpp",
        Scenario.SDK: "llama.cpp has no client for what is in this process",
    }

    @asynccontextmanager
    async def opened(self, *answers: Said, limit: int = 0) -> AsyncGenerator[Room]:
        async with loaded(context_size=limit or 2048) as model:

            async def released() -> None:
                """The only slot is free: the next answer, which the test asks for, shows it."""

            yield Room(Steered(model, iter(answers)), released)
