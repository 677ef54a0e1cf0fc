"""A generation in the shapes of the Responses API."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shepherd.backends.base import Generation
from shepherd.errors import ShepherdError
from shepherd.events import CallbackEvent, FinishReason
from shepherd.json_text import frame
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.generation import Choices, check_whole
from shepherd.server.openai_responses.output import COMPLETED, INCOMPLETE, Event, OutputWriter
from shepherd.server.openai_responses.record import ResponseRecord, Status, usage_of
from shepherd.server.responses import Frames

OPENING = ("response.created", "response.in_progress")


@dataclass(slots=True)
class EventWriter:
    """Writes the events of a response, with increasing numbers."""

    record: ResponseRecord
    _next: int = 0

    def frame(self, event: Event) -> str:
        """The server-sent event."""
        kind, fields = event
        data = {"type": kind, "sequence_number": self._next, **fields}
        self._next += 1
        return frame(data, kind)

    def state(self, kind: str) -> str:
        """An event that has the response as it is now."""
        return self.frame((kind, {"response": self.record.body()}))


@dataclass(slots=True)
class ResponseAnswer:
    """One answer, as an object or as events; `keep` is awaited before the last event is sent.

    `opening` are the events before the text that were not sent yet.
    """

    record: ResponseRecord
    output: OutputWriter
    keep: Callable[[], Awaitable[None]]
    events: EventWriter
    opening: Sequence[str] = OPENING

    def whole(self, generations: Sequence[Generation]) -> JsonObject:
        """The response object; `keep` is left to the caller."""
        message = generations[0].message
        logprobs = generations[0].logprobs or ()
        if message.reasoning:
            list(self.output.text(CallbackEvent.THINKING, message.reasoning))
        if message.content:
            list(self.output.text(CallbackEvent.CONTENT, message.content, logprobs))
        self._finish(generations[0])
        return self.record.body()

    async def frames(self, choices: Choices) -> Frames:
        """The events; an answer that breaks off after the first one ends as `response.failed`."""
        opened = False
        try:
            async for _, event, text, logprobs in choices:
                generation = await choices.result(0) if event is None else None
                if generation is not None and not opened:
                    check_whole(generation)
                if not opened:
                    self.record.status = Status.IN_PROGRESS
                    for kind in self.opening:
                        yield self.events.state(kind)
                opened = True
                for item in self._events(event, text, logprobs, generation):
                    yield self.events.frame(item)
        except (ApiError, ShepherdError) as error:
            if not opened:
                raise
            for item in self.fail(error):
                yield self.events.frame(item)
        await self.keep()
        yield self.events.state(f"response.{self.record.status.value}")

    def fail(self, error: BaseException) -> list[Event]:
        """End the response as failed; the events that end what was begun."""
        events = [*self.output.close(INCOMPLETE)]
        self.record.fail(error, self.output.items)
        return events

    def _events(
        self,
        event: CallbackEvent | None,
        text: str,
        logprobs: Sequence[TokenLogprob],
        generation: Generation | None,
    ) -> list[Event]:
        if event is not None:
            return [*self.output.text(event, text, logprobs)]
        if generation is None:
            return []
        check_whole(generation)
        return self._finish(generation)

    def _finish(self, generation: Generation) -> list[Event]:
        cut = generation.finish_reason is FinishReason.LENGTH
        events = [*self.output.finish(generation, INCOMPLETE if cut else COMPLETED)]
        self.record.usage = usage_of(generation)
        self.record.end(Status.INCOMPLETE if cut else Status.COMPLETED, self.output.items)
        return events
