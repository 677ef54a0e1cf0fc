"""A conversation: its messages, what it offers the model, and how many tokens each part takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from shepherd.messages import Message, ToolSpec
from shepherd.sampling import Sampling
from shepherd.structure import OutputFormat, ToolChoice


@dataclass(slots=True)
class TokenLedger:
    """Tokens as the backend last measured them; None where it has not.

    `counts` runs parallel to `Session.messages`. `context_used` and `context_size` are what the
    last generation left in the context and what the context holds.
    """

    counts: list[int | None] = field(default_factory=list[int | None])
    context_used: int = 0
    context_size: int = 0


class SessionJournal(Protocol):
    """Is told of every change to a session's history as it happens."""

    def message_added(self, message: Message) -> None: ...

    def messages_evicted(self, ranges: Sequence[range]) -> None: ...

    def cleared(self) -> None: ...


class SessionArchive(Protocol):
    """Takes what leaves a conversation for want of room; never fails, never waits."""

    @property
    def keeps(self) -> bool:
        """Whether what it takes can be found again."""
        ...

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Take messages in their order, and when each was said; None if nobody knows."""
        ...


@dataclass(slots=True)
class Session:
    """A conversation and what a backend needs to answer it; owned by one frontend.

    Change `messages` through the methods, so that ledger and journal follow. Nothing volatile may
    enter `system_message` after the first turn: it would cost the whole KV cache. `began` is what
    templates that ask for the date are told, also after a restart; None = the first request's.
    `times` runs parallel to `messages`: when each was said, None if nobody knows.
    """

    system_message: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    sampling: Sampling = field(default_factory=Sampling)
    thinking: bool = False
    tool_choice: ToolChoice | None = None
    output_format: OutputFormat | None = None
    id: str = ""
    began: datetime | None = None
    ledger: TokenLedger = field(default_factory=TokenLedger)
    journal: SessionJournal | None = None
    archive: SessionArchive | None = None
    times: list[datetime | None] = field(default_factory=list[datetime | None])

    def __post_init__(self) -> None:
        self.ledger.counts.extend([None] * (len(self.messages) - len(self.ledger.counts)))
        self.times.extend([None] * (len(self.messages) - len(self.times)))

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        self.ledger.counts.append(None)
        self.times.append(datetime.now(UTC))
        if self.journal is not None:
            self.journal.message_added(message)

    def evict(self, ranges: Sequence[range]) -> list[Message]:
        """Remove the messages at `ranges` (disjoint, ascending) and return them in order.

        The archive, if there is one, keeps them.
        """
        times = [self.times[i] for r in ranges for i in r]
        gone = self._remove(ranges)
        if self.archive is not None and gone:
            self.archive.keep(gone, times)
        return gone

    def pop_last(self) -> Message:
        """Remove the last message and return it; the archive does not keep it."""
        last = len(self.messages) - 1
        return self._remove([range(last, last + 1)])[0]

    def clear(self) -> None:
        """Forget all messages; the system message and the tools stay."""
        self.messages.clear()
        self.ledger.counts.clear()
        self.times.clear()
        self.ledger.context_used = 0
        if self.journal is not None:
            self.journal.cleared()

    def _remove(self, ranges: Sequence[range]) -> list[Message]:
        doomed = {i for r in ranges for i in r}
        gone = [m for i, m in enumerate(self.messages) if i in doomed]
        self.messages[:] = [m for i, m in enumerate(self.messages) if i not in doomed]
        counts, times = self.ledger.counts, self.times
        counts[:] = [c for i, c in enumerate(counts) if i not in doomed]
        times[:] = [t for i, t in enumerate(times) if i not in doomed]
        if self.journal is not None and gone:
            self.journal.messages_evicted(ranges)
        return gone
