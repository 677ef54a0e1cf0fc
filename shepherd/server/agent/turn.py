"""The parts of a turn of the agent: its prompt, its rounds and its tools."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from shepherd.agents.progress import LAST_ROUND
from shepherd.backends.base import Backend, Generation, Observer, Prefilled
from shepherd.events import (
    MEASURES,
    EventCallback,
    Stats,
    ignore_events,
)
from shepherd.messages import ToolCall
from shepherd.server.agent.tasks import Accounts
from shepherd.server.agent.text import AnswerText
from shepherd.server.errors import ApiError
from shepherd.session import Session
from shepherd.tools.base import ToolResult
from shepherd.turn import OutOfTokensError, ToolExecutor


class TurnPrompt(Prefilled):
    """The prompt of a turn: that of its first round, then of the round that runs.

    `held` is what the first round holds. It is given back with that round, long before the turn
    ends, because the next rounds may need the same place in the model.
    """

    def __init__(self, first: Prefilled, held: AsyncExitStack) -> None:
        self.prompt_tokens = first.prompt_tokens
        self.cached_tokens = first.cached_tokens
        self.generations: list[Generation] = []
        self.current = first
        self._held: AsyncExitStack | None = held
        self._copied = 0
        self._runs = True

    def take_first(self) -> AsyncExitStack | None:
        """What the first round holds, once; who takes it gives it back."""
        held, self._held = self._held, None
        return held

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

    def done(self) -> Stats:
        """The measures of the rounds that have ended."""
        stats = [generation.stats for generation in self.generations]
        return total(stats) if stats else Stats()

    def stats(self) -> Stats:
        stats = [generation.stats for generation in self.generations]
        return total([*stats, self.current.stats()] if self._runs else stats)

    @property
    def generated(self) -> Sequence[int]:
        return self.current.generated

    @property
    def prompt_text(self) -> str:
        return self.current.prompt_text


class TurnRounds(Observer):
    """The rounds of one turn: its first prompt is ready, and the key pays for each further one."""

    def __init__(self, prompt: TurnPrompt, text: AnswerText, accounts: Accounts) -> None:
        self._prompt = prompt
        self._text = text
        self._budget = accounts.budget
        self._watch = accounts.watch
        self._max_tokens = 0

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        first = self._prompt.take_first()
        if first is not None:
            async with first:
                yield [self._prompt.current]
            return
        try:
            self._max_tokens = await self._budget.next_round(session, self._prompt.done())
        except ApiError as error:
            self._text.note(error.message)
            raise OutOfTokensError(error.message) from error
        async with self._watch.prefilled(backend, session, callback, count) as prompts:
            self._prompt.begin_round(prompts[0])
            yield prompts

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        limit = min(filter(None, (max_tokens, self._max_tokens)), default=0)
        generation = await self._watch.generate(backend, prompt, callback, limit)
        self._prompt.end_round(generation)
        self._text.end_generation(generation.message)
        return generation


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
