"""The updates of a generation, and its events."""

from msgspec import Struct

from shepherd import errors, messages, sampling
from shepherd.backends.base import Generation
from shepherd.backends.output.filter import OutputFilter, PlainOutput
from shepherd.backends.output.text import ContentTokens
from shepherd.events import Event, EventCallback, FinishReason, Stats, Stop, TextEvent


class Progress(Struct, frozen=True):
    """The prompt is in memory up to `done` of `total` tokens; `cached` were there before."""

    done: int
    total: int
    cached: int = 0


class Queued(Struct, frozen=True):
    """The request waits at this place, the first one is 1, and will probably start in `seconds`.

    0 seconds are unknown.
    """

    place: int
    seconds: float


class Ready(Struct, frozen=True):
    """The prompt is in memory; `cached` of its tokens were there before."""

    cached: int


class Text(Struct, frozen=True):
    """More text was generated; `logprob` belongs to the newest token, if requested.

    The text is empty if the token does not complete a character.
    """

    text: str
    logprob: sampling.TokenLogprob | None = None


class Finished(Struct, frozen=True):
    """The generation ended; `tokens` are the generated ones, without the end token.

    `stop_string` is the stop string that ended it, "" if none did.
    """

    reason: FinishReason
    stats: Stats
    tokens: tuple[int, ...]
    stop_string: str = ""


class Failed(Struct, frozen=True):
    """The request ended with an error."""

    error: errors.BackendError


Update = Queued | Progress | Ready | Text | Finished | Failed


class Answer:
    """Collects one generation; `cancelled` is true once the callback has returned False.

    `characters` counts the text that the model has generated.
    """

    def __init__(
        self,
        output: OutputFilter | PlainOutput,
        callback: EventCallback,
        *,
        cancelled: bool = False,
        logprobs: list[sampling.TokenLogprob] | None = None,
    ) -> None:
        """`logprobs` receives the log probabilities of content tokens before their events."""
        self._output = output
        self._logprobs = logprobs
        self._content_tokens = None if logprobs is None else ContentTokens()
        self._callback = callback
        self.cancelled = cancelled
        self.finished: Finished | None = None
        self.characters = 0
        self._has_ended = False

    def take(self, updates: list[Update]) -> None:
        """Send the events of these updates; raises the error of a Failed."""
        text: list[str] = []
        for update in updates:
            match update:
                case Text() if self._content_tokens is not None:
                    # Joined text would no longer show which token its content came from.
                    self._feed_token(update, self._content_tokens)
                case Text(text=piece):
                    text.append(piece)
                case Finished():
                    self.finished = update
                case Failed(error=error):
                    raise error
                case Queued() | Progress() | Ready():
                    pass  # they are about the prompt, and make no event here
        if text:
            self._feed("".join(text))
        if self.finished is not None:
            self._end(truncated=self.finished.reason is not FinishReason.STOP)

    @property
    def kept(self) -> int | None:
        """So many characters come before a call that went wrong; None without one."""
        return None if isinstance(self._output, PlainOutput) else self._output.kept

    @property
    def separator(self) -> str:
        """What stands between the text before a call that went wrong, and the next call."""
        return "" if isinstance(self._output, PlainOutput) else self._output.separator

    def rewind(self, *, written: bool) -> None:
        """Go on behind the text before a call that went wrong, as the filter does."""
        assert isinstance(self._output, OutputFilter)
        self.finished, self._has_ended = None, False
        self._send_all(self._output.rewind(written=written))

    def _end(self, *, truncated: bool) -> None:
        """Send the text that was held, once."""
        if not self._has_ended:
            self._has_ended = True
            self._send_all(self._output.finish(truncated=truncated))

    def complete(self, stats: Stats) -> Generation:
        """Send the remaining text, STATS, STOP and the calls; `stats` is for a cancelled answer."""
        reason, stop_string = FinishReason.CANCELLED, ""
        if self.finished is not None and not self.cancelled:
            reason, stats = self.finished.reason, self.finished.stats
            stop_string = self.finished.stop_string
        self._end(truncated=reason is not FinishReason.STOP)
        result = self._output.result
        if result.tool_calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        for event in (stats, Stop(reason), *result.tool_calls):
            self._send(event)
        if self.cancelled:  # perhaps only now, by the callback of one of these events
            reason = FinishReason.CANCELLED
        message = messages.Message.assistant(result.content, result.reasoning, result.tool_calls)
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        problems = result.problems
        return Generation(message, reason, stats, problems, logprobs, stop_string=stop_string)

    def _feed_token(self, update: Text, content_tokens: ContentTokens) -> None:
        """Feed one token alone, to determine which part of it is content."""
        if update.logprob is None:  # the rest of the text, behind the last token
            content_tokens.finish()
        else:
            content_tokens.add(update.logprob)
        self._feed(update.text)

    def _feed(self, text: str) -> None:
        self.characters += len(text)
        self._send_all(self._output.feed(text))

    def _send_all(self, events: list[TextEvent]) -> None:
        """Send the events, after the log probabilities of the content tokens in them."""
        if self._content_tokens is not None and self._logprobs is not None:
            self._logprobs += self._content_tokens.tokens_of(events)
        for event in events:
            self._send(event)

    def _send(self, event: Event) -> None:
        """Give the event to the callback, which cancels the answer if it returns False."""
        if not self.cancelled:
            self.cancelled = not self._callback(event)
