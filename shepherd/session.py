"""A conversation: its messages, its tools, and the number of tokens of each part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from shepherd.messages import Message, ToolSpec
from shepherd.sampling import Sampling
from shepherd.structure import OutputFormat, ToolChoice

T = TypeVar("T")


@dataclass(slots=True)
class TokenLedger:
    """The backend's last token counts; None if it has not counted.

    `counts` runs parallel to `Session.messages`. `context_used` is the number of tokens that the
    last generation left in the context, and `context_size` is the capacity of the context.
    """

    counts: list[int | None] = field(default_factory=list[int | None])
    context_used: int = 0
    context_size: int = 0


class SessionJournal(Protocol):
    """Receives every change to a session's history as it happens."""

    def message_added(self, message: Message) -> None: ...

    def messages_evicted(self, ranges: Sequence[range]) -> None: ...

    def cleared(self) -> None: ...


class SessionArchive(Protocol):
    """Stores the messages that are evicted from a full context; never raises, never blocks."""

    @property
    def keeps(self) -> bool:
        """Whether the stored messages can be searched."""
        ...

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Store messages in their order, each with its time; None if the time is unknown."""
        ...


class SessionAdditions(Protocol):
    """Messages that join a session during a turn, such as the user's next message."""

    async def opening(self, prompt: Message) -> Message:
        """The prompt, with the notes that the model must read with it."""
        ...

    async def between_rounds(self, *, ending: bool) -> Sequence[Message]:
        """The messages that join after the results of a round.

        With `ending`, they join after the last answer and continue the turn.
        """
        ...

    async def at_end(self, answer: str) -> Sequence[Message]:
        """The messages that continue a turn that would end with `answer`; none ends it."""
        ...


class DeferredTools(Protocol):
    """The tools that the prompt does not list, and that a search can bring in."""

    def found_in(self, messages: Sequence[Message]) -> list[ToolSpec]:
        """The tools that the results of searches in `messages` name."""
        ...


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt that the model continues directly, without a chat template.

    `parts` are texts, which may contain control tokens, and numbers of tokens. A prompt that begins
    with text gets the model's start token first, if the model has one. `measured`: the
    client needs the log probabilities of its tokens too, with as many others as the answer has.
    """

    parts: tuple[str | int, ...]
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Infill:
    """Two texts between which the model writes; `start` is the beginning of the text between them.

    `files` are pairs of a name and a text that come before the prompt.
    """

    prefix: str
    suffix: str
    start: str = ""
    files: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Session:
    """A conversation, with everything that a backend needs to answer it; owned by one frontend.

    Change `messages` through the methods, so that ledger and journal stay in step. Do not change
    `system_message` after the first turn, because that invalidates the whole KV cache. `began` is
    the date for templates, also after a restart; None means the date of the first request. `times`
    runs parallel to `messages` and holds the time of each; None if it is unknown. `raw_prompt`
    replaces the messages. With `continues`, the answer continues the last message, which must be
    the assistant's. `template_values` are further variables of the chat template, in JSON. All
    three need a backend whose `ModelInfo.raw_prompts` is true. `deferred` are tools that the prompt
    does not list.
    """

    system_message: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    deferred: DeferredTools | None = None
    sampling: Sampling = field(default_factory=Sampling)
    thinking: bool = False
    tool_choice: ToolChoice | None = None
    output_format: OutputFormat | None = None
    raw_prompt: RawPrompt | Infill | None = None
    continues: bool = False
    template_values: Mapping[str, object] = field(default_factory=dict[str, object])
    id: str = ""
    began: datetime | None = None
    ledger: TokenLedger = field(default_factory=TokenLedger)
    journal: SessionJournal | None = None
    archive: SessionArchive | None = None
    additions: SessionAdditions | None = None
    times: list[datetime | None] = field(default_factory=list[datetime | None])

    def __post_init__(self) -> None:
        number = len(self.messages)
        if len(self.ledger.counts) < number:
            self.ledger = replace(self.ledger, counts=_padded(self.ledger.counts, number))
        self.times = _padded(self.times, number)

    @property
    def callable_tools(self) -> list[ToolSpec]:
        """The tools that a call may name: those of the prompt, and those that a search found."""
        if self.deferred is None or not self.tools:
            return self.tools
        names = {tool.name for tool in self.tools}
        found = self.deferred.found_in(self.messages)
        return [*self.tools, *(tool for tool in found if tool.name not in names)]

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        self.ledger.counts.append(None)
        self.times.append(datetime.now(UTC))
        if self.journal is not None:
            self.journal.message_added(message)

    def evict(self, ranges: Sequence[range]) -> list[Message]:
        """Remove the messages at `ranges` (disjoint, ascending) and return them in order.

        The archive, if there is one, stores them.
        """
        times = [self.times[i] for r in ranges for i in r]
        evicted = self._remove(ranges)
        if self.archive is not None and evicted:
            self.archive.keep(evicted, times)
        return evicted

    def pop_last(self) -> Message:
        """Remove the last message and return it; the archive does not keep it."""
        last = len(self.messages) - 1
        return self._remove([range(last, last + 1)])[0]

    def clear(self) -> None:
        """Remove all messages; the system message and the tools stay."""
        self.messages.clear()
        self.ledger.counts.clear()
        self.times.clear()
        self.ledger.context_used = 0
        if self.journal is not None:
            self.journal.cleared()

    def _remove(self, ranges: Sequence[range]) -> list[Message]:
        to_remove = {i for r in ranges for i in r}
        removed = [m for i, m in enumerate(self.messages) if i in to_remove]
        self.messages[:] = [m for i, m in enumerate(self.messages) if i not in to_remove]
        counts, times = self.ledger.counts, self.times
        counts[:] = [c for i, c in enumerate(counts) if i not in to_remove]
        times[:] = [t for i, t in enumerate(times) if i not in to_remove]
        if self.journal is not None and removed:
            self.journal.messages_evicted(ranges)
        return removed


def _padded(values: list[T | None], number: int) -> list[T | None]:
    """The values as a new list of at least `number` items."""
    return [*values, *[None] * (number - len(values))]
