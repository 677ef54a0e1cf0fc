"""A request as a session to continue, and the shape of its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shepherd.backends.base import Generation
from shepherd.messages import JsonObject, Message
from shepherd.server.generation import NO_TOKENS, Choices, GenerationSource, PromptProgress
from shepherd.server.responses import Frames
from shepherd.session import Session


class Answer(Protocol):
    """A generation in the shape of one API."""

    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The body of the response, one generation for each choice."""
        ...

    def frames(self, choices: Choices) -> Frames:
        """The frames of a stream (see `frame`); an answer that broke off raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as a session to continue, and the shape of its answer.

    `count` answers are generated, each of at most `max_tokens` tokens; 0 means as many as fit, and
    `NO_TOKENS` none. The answers to the prompts of `later` follow, one for each. `opened` gets the
    choices before the first text. `progress` makes the frame of a stream that tells how far the
    prompt is read; the headers then do not wait for all of it. If the conversation does not fit,
    its oldest turns leave, and `on_evicted` gets their messages; without it the request is refused.
    `tools_allowed` is false if the request wants no call at all. `count_field` is the name of the
    field of `count`. `limited` wraps what generates, to end answers early.
    """

    session: Session
    answer: Answer
    count: int = 1
    max_tokens: int = 0
    later: Sequence[Session] = ()
    opened: Callable[[Choices], None] | None = None
    progress: Callable[[PromptProgress], str] | None = None
    on_evicted: Callable[[Sequence[Message]], None] | None = None
    tools_allowed: bool = True
    count_field: str = "n"
    limited: Callable[[GenerationSource], GenerationSource] | None = None

    @property
    def is_turn(self) -> bool:
        """Whether an agent can answer: a conversation, whose answer is a new message."""
        session = self.session
        plain = session.raw_prompt is None and not session.continues
        return plain and self.tools_allowed and self.max_tokens != NO_TOKENS
