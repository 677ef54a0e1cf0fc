"""One request for a response, from its items to its answer."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, Message
from shepherd.server.agent.options import RequestOptions
from shepherd.server.exchange import Call, Exchange
from shepherd.server.openai_responses.answers import OPENING, EventWriter, ResponseAnswer
from shepherd.server.openai_responses.history import MANY_ITEMS, History
from shepherd.server.openai_responses.output import INCOMPLETE, OutputWriter, ReasoningView
from shepherd.server.openai_responses.record import ResponseRecord, Status
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.rows import StoredResponse
from shepherd.server.openai_responses.store import ResponseStore, ResponseStoreError
from shepherd.server.openai_responses.to_session import Source, Translator
from shepherd.server.wire.fields import MAX_TOKENS

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Creation:
    """A response that is being made for the key `owner`.

    `opening` are the events before the text that were not sent yet. `built` is done when the
    request was accepted.
    """

    request: ResponsesRequest
    record: ResponseRecord
    history: History
    translator: Translator
    store: ResponseStore
    owner: str = ""
    max_tokens: int = 0
    opening: Sequence[str] = OPENING
    output: OutputWriter | None = None
    built: Future[None] = field(default_factory=Future[None])
    events: EventWriter = field(init=False)

    def __post_init__(self) -> None:
        self.events = EventWriter(self.record)

    def call(self) -> Call:
        """The call to the model."""
        return Call(
            model=self.request.model,
            build=self._build,
            stream=bool(self.request.stream),
            slow=len(self.history.items) > MANY_ITEMS,
            options=RequestOptions(owner=self.owner),
        )

    async def keep(self) -> None:
        """Store the response as it is now, if that was requested; a failure is logged."""
        if not self.record.stored:
            return
        sent = [item.data for item in self.history.own]
        try:
            await self.store.save(self.owner, StoredResponse(self.record.body(), sent))
        except ResponseStoreError as error:
            self.record.stored = False
            logger.error("A response is not stored: %s", error)

    def fail(self, error: BaseException) -> str:
        """End the response as failed; the event that says so."""
        self.record.fail(error, self._partial_output())
        return self.events.state("response.failed")

    def cancel(self) -> None:
        """End the response as cancelled, unless it is complete."""
        if not self.record.status.is_final:
            self.record.end(Status.CANCELLED, self._partial_output())

    def _partial_output(self) -> Sequence[JsonObject]:
        """The items so far; the one to which text was added is incomplete."""
        if self.output is None:
            return ()
        list(self.output.close(INCOMPLETE))
        return self.output.items

    def _build(self, model: ModelInfo) -> Exchange:
        """The exchange; raises ApiError."""
        request = self.request
        conversation = self.translator.conversation(request, self.history.items, model)
        self.record.model = request.model or model.id
        view = reasoning_view(request, thinking=conversation.session.thinking)
        seal = self.translator.sign
        one_call = request.parallel_tool_calls is False
        self.output = OutputWriter(conversation.tools, view, seal, one_call)
        if not self.built.done():
            self.built.set_result(None)
        truncates = request.truncation == "auto"
        return Exchange(
            conversation.session,
            ResponseAnswer(self.record, self.output, self.keep, self.events, self.opening),
            max_tokens=min(request.max_output_tokens or self.max_tokens, MAX_TOKENS),
            on_evicted=partial(self._evicted, conversation.sources) if truncates else None,
            tools_allowed=request.tool_choice != "none",
        )

    def _evicted(self, sources: Sequence[Source], messages: Sequence[Message]) -> None:
        """Note the items of messages that left."""
        evicted = {id(message) for message in messages}
        for message, ids in sources:
            if id(message) in evicted:
                self.record.truncated_items += ids


def reasoning_view(request: ResponsesRequest, *, thinking: bool) -> ReasoningView:
    """How the client sees the reasoning: only as far as the request wants any."""
    if request.reasoning is not None and request.reasoning.summary_style:
        return ReasoningView.SUMMARY
    return ReasoningView.TEXT if thinking else ReasoningView.HIDDEN
