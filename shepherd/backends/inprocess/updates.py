"""Updates that an engine sends to the event loop about a request."""

from dataclasses import dataclass

from shepherd.backends.base import GenerationStats
from shepherd.errors import BackendError
from shepherd.events import FinishReason
from shepherd.logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class Progress:
    """The prompt is in memory up to `done` of `total` tokens; `cached` were there before."""

    done: int
    total: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The prompt is in memory; `cached` of its tokens were there before."""

    cached: int


@dataclass(frozen=True, slots=True)
class Text:
    """More text was generated; `logprob` belongs to the newest token, if requested.

    The text is empty if the token does not complete a character.
    """

    text: str
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The generation ended; `tokens` are the generated ones, without the end token.

    `stop_string` is the stop string that ended it, "" if none did.
    """

    reason: FinishReason
    stats: GenerationStats
    tokens: tuple[int, ...]
    stop_string: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with an error."""

    error: BackendError


Update = Progress | Ready | Text | Finished | Failed
