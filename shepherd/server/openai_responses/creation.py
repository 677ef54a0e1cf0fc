"""One request for a response, from its items to its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message
from shepherd.server.exchange import Call, Exchange
from shepherd.server.openai_responses.answers import ResponseAnswer
from shepherd.server.openai_responses.items import Item
from shepherd.server.openai_responses.output import OutputWriter, ReasoningView
from shepherd.server.openai_responses.record import ResponseRecord
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.to_session import REASONING, Source, Translator

MANY_ITEMS = 500
"""More are translated beside the event loop."""

MAX_TOKENS = 2**31 - 1
"""Larger limits mean this one."""


@dataclass(slots=True)
class Creation:
    """A response that is being made; `items` is the whole conversation before it."""

    request: ResponsesRequest
    record: ResponseRecord
    items: Sequence[Item]
    translator: Translator
    max_tokens: int = 0
    answer: ResponseAnswer | None = None

    def call(self) -> Call:
        """The call to the model."""
        return Call(
            model=self.request.model,
            build=self._build,
            stream=bool(self.request.stream),
            slow=len(self.items) > MANY_ITEMS,
        )

    async def keep(self) -> None:
        """Store the response."""

    def _build(self, model: ModelInfo) -> Exchange:
        """The exchange; raises ApiError."""
        request = self.request
        conversation = self.translator.conversation(request, self.items, model)
        self.record.model = request.model or model.id
        view = reasoning_view(request, thinking=conversation.session.thinking)
        seal = partial(self.translator.seal.wrap, REASONING)
        one_call = request.parallel_tool_calls is False
        output = OutputWriter(conversation.tools, view, seal, one_call)
        self.answer = ResponseAnswer(self.record, output, self.keep)
        truncates = request.truncation == "auto"
        return Exchange(
            conversation.session,
            self.answer,
            max_tokens=min(request.max_output_tokens or self.max_tokens, MAX_TOKENS),
            on_evicted=partial(self._evicted, conversation.sources) if truncates else None,
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
