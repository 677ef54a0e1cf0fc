"""Answers of the conversation's model for servers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shepherd.backends.base import Backend
from shepherd.errors import InvalidRequestError
from shepherd.events import ignore_events
from shepherd.messages import Message, Role
from shepherd.session import Session
from shepherd.turn import ToolExecutor, TurnLimits, run_turn


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A conversation that a server wants the model to continue."""

    system_message: str
    messages: tuple[Message, ...]
    max_tokens: int


Sampler = Callable[[SamplingRequest], Awaitable[str]]
"""The model's answer; raises ShepherdError."""


async def sampled(request: SamplingRequest, backend: Backend, no_tools: ToolExecutor) -> str:
    """The answer of a backend, in a session of its own and without tools."""
    *before, prompt = request.messages
    session = Session(request.system_message, before)
    limits = TurnLimits(request.max_tokens, max_rounds=1, max_hints=0)
    await run_turn(session, prompt, backend, no_tools, ignore_events, limits)
    last = session.messages[-1]
    if last.role is not Role.ASSISTANT:
        raise InvalidRequestError("the model gave no answer")
    return last.content
