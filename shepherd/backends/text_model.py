"""The text side of a model: tokens, templates, and what a server says about it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec import Struct

from shepherd.errors import InvalidRequestError
from shepherd.sampling import Sampling
from shepherd.session import Session


class ModelFile(Struct, frozen=True):
    """A model in this process: its file's name, its template and its sizes.

    `context_size` and `trained_context` are in tokens, `bytes` is the size of the weights.
    `sampling` is what it samples with where a request does not say. `places` are the layers on each
    device; the output counts as one.
    """

    name: str
    template: str
    context_size: int
    trained_context: int
    vocabulary: int
    bytes: int
    bos: str
    eos: str
    sampling: Sampling
    places: Mapping[str, int]


class TextModel(ABC):
    """Tokens and prompts of a model in this process."""

    @property
    @abstractmethod
    def file(self) -> ModelFile:
        """What is known about the model."""

    @property
    @abstractmethod
    def slots(self) -> Sequence[bool]:
        """For each request that may run at once, whether one runs there."""

    @abstractmethod
    async def tokenize(
        self, parts: Sequence[str | int], *, special: bool = True, begins: bool = False
    ) -> list[int]:
        """The tokens of texts and numbers; raises InvalidRequestError for an unknown number.

        With `special`, the texts of control tokens become these tokens. With `begins`, the token
        for the beginning comes first, if the model has one.
        """

    @abstractmethod
    async def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token; raises InvalidRequestError for an unknown number."""

    @abstractmethod
    async def render(self, session: Session, *, answer: bool = True) -> str:
        """The session as the template writes it; `answer` adds the beginning of the answer."""


def refuse_raw(session: Session, model: str) -> None:
    """Raise InvalidRequestError for what only a model in this process can do."""
    if session.raw_prompt is not None:
        message = f"{model} takes messages only, because it does not run in this process."
        raise InvalidRequestError(message, "prompt")
    if session.continues:
        message = (
            f"{model} can't continue a message, because it does not run in this process. "
            "End the conversation with a message of the user."
        )
        raise InvalidRequestError(message, "messages")
