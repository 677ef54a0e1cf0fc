"""A backend that does not know its model's tokenizer, and an upstream that does."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from shepherd.backends.api.estimate import TokenEstimator
from shepherd.backends.api.overflow import Overflow, parse_overflow
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.errors import ContextFullError
from shepherd.events import (
    EventCallback,
    FinishReason,
    Stats,
    Stop,
    Text,
    ignore_events,
)
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.tools.tool import ToolResult

OUTPUT_TOKENS = 16
"""Output that upstreams are asked for, in tokens."""

STYLES: dict[str, Callable[[int, int], str]] = {
    "exact": lambda limit, prompt: f"prompt is too long: {prompt} tokens > {limit} maximum",
    "with the answer": lambda limit, prompt: (
        f"input length and `max_tokens` exceed context limit: {prompt} + {OUTPUT_TOKENS} > {limit}"
    ),
    "over alone": lambda limit, prompt: (
        f"too many tokens: size limit exceeded by {max(1, prompt + OUTPUT_TOKENS - limit)} tokens"
    ),
    "limit alone": lambda limit, prompt: (
        f"The input token count exceeds the maximum number of tokens allowed {limit}."
    ),
    "lower bound": lambda limit, prompt: (
        f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{OUTPUT_TOKENS} output tokens and your prompt contains at least "
        f"{limit - OUTPUT_TOKENS + 1} input tokens"
    ),
    "nothing": lambda limit, prompt: "Please reduce the length of the messages or completion.",
}


class GuessingPrefilled(Prefilled):
    """A session that is to be sent."""

    def __init__(self, session: Session, prompt_tokens: int) -> None:
        self.session = session
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0

    async def __aexit__(self, *_: object) -> None:
        """Holds nothing."""

    async def __aenter__(self) -> Self:
        return self


@dataclass
class Guessing(Backend):
    """Estimates as API backends do; `ratio` tokens per character is the truth.

    `style` is how the upstream says that `limit` is passed. `knows_limit` and `learns` are for
    backends that were told the context's size, and that learn from an overflow.
    """

    limit: int
    ratio: float
    style: str
    answer: Callable[[Session], Message]
    knows_limit: bool = True
    learns: bool = True
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    requests: int = 0
    overflows: int = 0
    counted: int = 0

    @property
    def info(self) -> ModelInfo:
        error = self.estimator.error
        return ModelInfo(
            "guess",
            "guessing",
            self.limit if self.knows_limit else 0,
            count_error=1.0 if error is None else error,
        )

    def true_tokens(self, session: Session, messages: list[Message]) -> int:
        texts = [session.system_message, *map(_text, messages)]
        return round(sum(4 + len(text) * self.ratio for text in texts))

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        return GuessingPrefilled(session, self.estimator.estimate(session))

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        assert isinstance(prefilled, GuessingPrefilled)
        session = prefilled.session
        assert_valid(session)
        self.requests += 1
        prompt = self.true_tokens(session, session.messages)
        if prompt + OUTPUT_TOKENS > self.limit:
            self.overflows += 1
            raise self._full(session, prompt)
        self.estimator.learn(session, prompt)
        message = self.answer(session)
        stats = Stats(prompt, context_used=prompt, context_size=self.info.context_size)
        reason = FinishReason.TOOL_CALLS if message.tool_calls else FinishReason.STOP
        callback(Text(message.content))
        callback(Stop(reason))
        return Generation(message, reason, stats)

    def _full(self, session: Session, prompt: int) -> ContextFullError:
        text = STYLES[self.style](self.limit, prompt)
        overflow = parse_overflow({"error": {"message": text}})
        assert isinstance(overflow, Overflow)
        if self.learns and overflow.prompt_tokens is not None:
            self.estimator.learn(session, overflow.prompt_tokens)
        return ContextFullError(text, overflow.tokens_over, overflow.prompt_tokens)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        self.counted += 1
        return self.estimator.estimate_message(message)

    async def count_session_tokens(self, session: Session) -> int:
        return self.estimator.estimate(session)

    async def aclose(self) -> None:
        """Nothing to free."""


@dataclass
class Reader:
    """Gives every call a text of `size` characters, or as many bytes as it is told."""

    size: int

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        size = self.size if output_bytes is None else min(self.size, output_bytes)
        return ToolResult(("line of the file\n" * (size // 17 + 1))[:size])


def assert_valid(session: Session) -> None:
    """What any API takes: a user begins, and every call has its one result right behind it."""
    assert len(session.ledger.counts) == len(session.messages)
    assert session.messages[0].role is Role.USER
    waiting: list[str] = []
    for message in session.messages:
        if message.role is Role.TOOL:
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [c.id for c in message.tool_calls]
    assert waiting == []


def _text(message: Message) -> str:
    calls = "".join(c.name + c.arguments_json for c in message.tool_calls)
    return re.sub(r"\[cut to fit.*", "", message.content) + message.reasoning + calls
