"""The one loop that every frontend shares: prefill, generate, run tools, generate again."""

from dataclasses import dataclass
from typing import Protocol

from shepherd.backends.base import Backend, GenerationStats
from shepherd.events import EventCallback, FinishReason
from shepherd.messages import ToolCall
from shepherd.session import Session
from shepherd.tools.base import ToolResult


class ToolExecutor(Protocol):
    """Runs calls; never raises for a failed or refused call: the result says so."""

    async def run(self, call: ToolCall) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The guards of one turn."""

    max_tokens: int = 0
    max_rounds: int = 50
    reminder_after: int = 3
    stop_after: int = 5


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended; `stats` has one entry per generation."""

    finish_reason: FinishReason
    stats: tuple[GenerationStats, ...] = ()


async def run_turn(
    session: Session,
    prompt: str,
    backend: Backend,
    tools: ToolExecutor,
    callback: EventCallback,
    limits: TurnLimits | None = None,
) -> TurnOutcome:
    """Answer `prompt`, running tools until the model is done."""
    raise NotImplementedError
