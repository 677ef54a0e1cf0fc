"""A request as a session to continue, and the shape of its answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from shepherd.backends.base import Generation, Observer
from shepherd.messages import JsonObject, Message
from shepherd.server.generation import NO_TOKENS, ChoicePiece, Choices, PromptProgress, check_whole
from shepherd.server.responses import Frames
from shepherd.session import Session


class Answer(ABC):
    """One answer in the shape of an API: a whole body, or the frames of a stream (see `frame`).

    Both are made of the same parts. `choices` are those that are answered, once they run.
    """

    choices: Choices | None = None

    def attach(self, choices: Choices) -> None:
        """Take the choices, for what a generation alone does not tell."""
        self.choices = choices

    @abstractmethod
    def whole(self, generations: Sequence[Generation]) -> JsonObject | list[JsonObject]:
        """The body of the response, one generation for each choice."""

    async def frames(self, choices: Choices) -> Frames:
        """Yields the parts in their order; an answer that broke off raises ApiError."""
        begun: set[int] = set()
        async for piece in choices:
            ended = await choices.result(piece.choice) if piece.event is None else None
            if ended is not None:
                check_whole(ended)
            if piece.choice not in begun:
                begun.add(piece.choice)
                for text in self.begin(piece.choice):
                    yield text
            for text in self.add(piece) if ended is None else self.end(piece.choice, ended):
                yield text
        for text in self.close(await choices.results()):
            yield text

    def begin(self, _choice: int) -> Iterator[str]:
        """What precedes the first part of a choice."""
        yield from ()

    @abstractmethod
    def add(self, piece: ChoicePiece) -> Iterator[str]:
        """More text of a choice."""

    @abstractmethod
    def end(self, choice: int, generation: Generation) -> Iterator[str]:
        """What follows the text of a choice: its calls, why it ended, its measures."""

    def close(self, _generations: Sequence[Generation]) -> Iterator[str]:
        """What follows all choices."""
        yield from ()


class Exchange(Struct, frozen=True):
    """A request as a session to continue, and the shape of its answer.

    `count` answers are generated, each of at most `max_tokens` tokens; 0 means as many as fit, and
    `NO_TOKENS` none. The answers to the prompts of `later` follow, one for each. `progress` makes
    the frame of a stream that tells how far the prompt is read; the headers then do not wait for
    all of it. If the conversation does not fit, its oldest turns leave, and `on_evicted` gets their
    messages; without it the request is refused. `tools_allowed` is false if the request wants no
    call at all. `count_field` is the name of the field of `count`. `limited` adds to
    the observer of the work, to end answers early.
    """

    session: Session
    answer: Answer
    count: int = 1
    max_tokens: int = 0
    later: Sequence[Session] = ()
    progress: Callable[[PromptProgress], str] | None = None
    on_evicted: Callable[[Sequence[Message]], None] | None = None
    tools_allowed: bool = True
    count_field: str = "n"
    limited: Callable[[Observer], Observer] | None = None

    @property
    def is_turn(self) -> bool:
        """Whether an agent can answer: a conversation, whose answer is a new message."""
        session = self.session
        plain = session.raw_prompt is None and not session.continues
        return plain and self.tools_allowed and self.max_tokens != NO_TOKENS
