"""The parts of a turn of the agent: its prompt, its backend and its tools."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias

from shepherd.agents.progress import LAST_ROUND
from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.backends.forwarding import ForwardingBackend
from shepherd.events import MEASURES, EventCallback, Stats, ignore_events
from shepherd.messages import ToolCall
from shepherd.server.agent.text import AnswerText
from shepherd.server.errors import ApiError
from shepherd.session import Session
from shepherd.tools.base import ToolResult
from shepherd.turn import OutOfTokensError, ToolExecutor


class TurnPrompt(Prefilled):
    """The prompt of a turn: that of its first round, then of the round that runs."""

    def __init__(self, first: Prefilled) -> None:
        self.prompt_tokens = first.prompt_tokens
        self.cached_tokens = first.cached_tokens
        self.generations: list[Generation] = []
        self.current = first
        self._first: Prefilled | None = first
        self._copied = 0
        self._runs = True

    def take_first(self) -> Prefilled | None:
        """The prompt of the first round, once; who takes it releases it."""
        first, self._first = self._first, None
        return first

    def begin_round(self, prefilled: Prefilled) -> None:
        """Continue with the prompt of another round."""
        self.update_logprobs()
        self.current, self._copied, self._runs = prefilled, 0, True

    def end_round(self, generation: Generation) -> None:
        """Note the result of the round."""
        self.generations.append(generation)
        self._runs = False

    def update_logprobs(self) -> None:
        """Take over the log probabilities that are new."""
        new = (self.current.logprobs or [])[self._copied :]
        if new:
            self.logprobs = self.logprobs or []
            self.logprobs += new
            self._copied += len(new)

    def stats(self) -> Stats:
        stats = [generation.stats for generation in self.generations]
        return total([*stats, self.current.stats()] if self._runs else stats)

    @property
    def generated(self) -> Sequence[int]:
        return self.current.generated

    @property
    def prompt_text(self) -> str:
        return self.current.prompt_text

    def release(self) -> None:
        if (first := self.take_first()) is not None:
            first.release()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (first := self.take_first()) is not None:
            await first.__aexit__(exc_type, exc, traceback)


RoundLimit: TypeAlias = Callable[[Session, Stats], Awaitable[int]]
"""How many tokens a further round may generate after the others, 0 for no limit.

Raises ApiError if the key of the request does not allow the round.
"""


class TurnBackend(ForwardingBackend):
    """The backend of one turn: its first prompt is ready, and its generations are noted."""

    def __init__(
        self,
        backend: Backend,
        prompt: TurnPrompt,
        text: AnswerText,
        limit: RoundLimit | None = None,
    ) -> None:
        super().__init__(backend)
        self._prompt = prompt
        self._text = text
        self._limit = limit
        self._max_tokens = 0

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        first = self._prompt.take_first()
        if first is not None:
            return first
        if self._limit is not None:
            self._max_tokens = await self._allowed(self._limit, session)
        prefilled = await self._backend.prefill_session(session, callback)
        self._prompt.begin_round(prefilled)
        return prefilled

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        limit = min(filter(None, (max_tokens, self._max_tokens)), default=0)
        generation = await self._backend.generate_from_prefilled(prefilled, callback, limit)
        self._prompt.end_round(generation)
        self._text.end_generation(generation.message)
        return generation

    async def _allowed(self, limit: RoundLimit, session: Session) -> int:
        """The maximum of tokens of the next round; raises OutOfTokensError for none."""
        done = total([generation.stats for generation in self._prompt.generations])
        try:
            return await limit(session, done)
        except ApiError as error:
            self._text.note(error.message)
            raise OutOfTokensError(error.message) from error


@dataclass(frozen=True, slots=True)
class ReportedTools:
    """Runs calls, adds a line about each, and tells the model if its next round is the last."""

    tools: ToolExecutor
    text: AnswerText
    prompt: TurnPrompt
    max_rounds: int

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        self.text.begin_call(call)
        result = await self.tools.run(call, output_bytes, on_event)
        self.text.end_call(call, result)
        if len(self.prompt.generations) != self.max_rounds - 1:
            return result
        return replace(result, content=f"{result.content}\n{LAST_ROUND}")


def total(stats: Sequence[Stats]) -> Stats:
    """The sums over all rounds, with the context after the last one."""
    last = stats[-1]
    sums: dict[str, Any] = {
        name: sum(getattr(part, name) or 0 for part in stats) for name in MEASURES
    }
    known = [part.cost for part in stats if part.cost is not None]
    rest: dict[str, Any] = {"context_used": last.context_used, "context_size": last.context_size}
    rest["cost"] = sum(known) if known else None
    return Stats(**sums | rest)
