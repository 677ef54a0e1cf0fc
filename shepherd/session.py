"""A conversation: its messages, its tools, and the number of tokens of each part."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field, structs

from shepherd.images import Image
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.sampling import Sampling


class ToolChoice(Struct, frozen=True):
    """The answer must consist of tool calls; without a ToolChoice, the model decides.

    `name` requires exactly one call, of this tool. `single` allows at most one call.
    """

    name: str = ""
    single: bool = False


class OutputFormat(Struct, frozen=True):
    """The answer must be JSON that fits `schema`, or text that fits `grammar` (GBNF, from `root`).

    One of the two is set; the schema {"type": "object"} means any object. `strict` refuses a schema
    that can't be enforced in full.
    """

    schema: JsonObject | None = None
    grammar: str = ""
    strict: bool = False


T = TypeVar("T")


class TokenLedger(Struct):
    """The backend's last token counts; None if it has not counted.

    `counts` runs parallel to `Session.messages`. `context_used` is the number of tokens that the
    last generation left in the context, or that were read of a prompt so far. `context_size` is
    the capacity of the context.
    """

    counts: list[int | None] = field(default_factory=list[int | None])
    context_used: int = 0
    context_size: int = 0


class SessionJournal(Protocol):
    """Receives every change to a session's history as it happens."""

    def message_added(self, message: Message) -> None:
        """The message is the session's last one now."""

    def answer_grown(self, answer: Message) -> None:
        """The answer that is being written so far; `message_added` follows if it ends."""

    def messages_evicted(self, ranges: Sequence[range]) -> None:
        """The messages at these places are not in the session any more."""

    def cleared(self) -> None:
        """The session has no messages any more."""

    def branched(self, number: int, messages: Sequence[int | None], resumed: int | None) -> None:
        """The branch that ends at `number` was left for one of these messages.

        `resumed` is the end of the branch that continues; None for a new one.
        """

    def compacted(self, ranges: Sequence[range], summary: Message) -> None:
        """The summary stands for the messages at `ranges`, in the place of the first."""


class SessionArchive(Protocol):
    """Stores the messages that are evicted from a full context; never raises, never blocks."""

    @property
    def keeps(self) -> bool:
        """Whether the stored messages can be searched."""
        ...

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Store messages in their order, each with its time; None if the time is unknown."""


class SessionAdditions(Protocol):
    """Messages that join a session during a turn, such as the user's next message."""

    async def before_prompt(self) -> Sequence[Message]:
        """The messages that join the session before the prompt."""
        ...

    async def opening(self, prompt: Message) -> Message:
        """The prompt, with the notes that the model must read with it."""
        ...

    async def between_rounds(self, *, ending: bool) -> Sequence[Message]:
        """The messages that join after the results of a round.

        With `ending`, they join after the last answer and continue the turn.
        """
        ...

    def was_displayed(self, message: Message) -> bool:
        """Whether the user has read a message that `between_rounds` returned."""
        ...

    async def at_end(self, answer: str) -> Sequence[Message]:
        """The messages that continue a turn that would end with `answer`; none ends it."""
        ...


class DeferredTools(Protocol):
    """The tools that the prompt does not list, and that a search can bring in."""

    def specs_in(self, messages: Sequence[Message]) -> list[ToolSpec]:
        """The tools that the results of searches in `messages` name."""
        ...


class Branch(Struct, frozen=True):
    """The messages of a conversation when the user left it for an earlier message.

    `end` is the number of the session's next message at that moment. `numbers` and `times` run
    parallel to `messages`.
    """

    end: int
    numbers: tuple[int | None, ...]
    messages: tuple[Message, ...]
    times: tuple[datetime | None, ...]


MEDIA_MARK = "<__media__>"
"""Where an image stands in a raw prompt; the name is llama.cpp's."""


class RawPrompt(Struct, frozen=True):
    """A prompt that the model continues directly, without a chat template.

    `parts` are texts, which may contain control tokens, and numbers of tokens. A prompt that begins
    with text gets the model's start token first, if the model has one. `measured`: the
    client needs the log probabilities of its tokens too, with as many others as the answer has.
    `images` stand where the texts have a MEDIA_MARK each.
    """

    parts: tuple[str | int, ...]
    measured: bool = False
    images: tuple[Image, ...] = ()


class Infill(Struct, frozen=True):
    """Two texts between which the model writes; `start` is the beginning of the text between them.

    `files` are pairs of a name and a text that come before the prompt.
    """

    prefix: str
    suffix: str
    start: str = ""
    files: tuple[tuple[str, str], ...] = ()


class Session(Struct):
    """A conversation, with everything that a backend needs to answer it; owned by one frontend.

    Change `messages` through the methods, so that ledger and journal stay in step. Do not change
    `system_message` after the first turn, because that invalidates the whole KV cache. `began` is
    the date for templates, also after a restart; None means the date of the first request. `times`
    runs parallel to `messages` and holds the time of each; None if it is unknown. `raw_prompt`
    replaces the messages. With `continues`, the answer continues the last message, which must be
    the assistant's. `template_values` are further variables of the chat template, in JSON. All
    three need a backend whose `ModelInfo.raw_prompts` is true. `deferred` are tools that the prompt
    does not list. `numbers` runs parallel to `messages` too: each message gets the `next_number`,
    which is never used again; None marks a result that was added for a call without one.
    `branches` are those that the user left. `thinking_budget` limits the tokens of reasoning; None
    means no limit. `thinking_effort` is one of `Effort`; "" means the model's own.
    """

    system_message: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    sampling: Sampling = field(default_factory=Sampling)
    thinking: bool = False
    thinking_budget: int | None = None
    thinking_effort: str = ""
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
    deferred: DeferredTools | None = None
    times: list[datetime | None] = field(default_factory=list[datetime | None])
    numbers: list[int | None] = field(default_factory=list[int | None])
    next_number: int = 0
    branches: list[Branch] = field(default_factory=list[Branch])

    def __post_init__(self) -> None:
        """Fill the lists that run parallel to `messages`, of which a caller may have set none."""
        length = len(self.messages)
        if len(self.ledger.counts) < length:
            self.ledger = structs.replace(self.ledger, counts=_padded(self.ledger.counts, length))
        self.times = _padded(self.times, length)
        if len(self.numbers) < length:
            self.numbers = list(range(length))
            self.next_number = max(self.next_number, length)

    @property
    def callable_tools(self) -> list[ToolSpec]:
        """The tools that a call may name: those of the prompt, and those that a search found."""
        if self.deferred is None or not self.tools:  # without tools there is no search either
            return self.tools
        names = {tool.name for tool in self.tools}
        results = self.deferred.specs_in(self.messages)
        return [*self.tools, *(tool for tool in results if tool.name not in names)]

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        self.ledger.counts.append(None)
        self.times.append(datetime.now(UTC))
        self.numbers.append(self._take_number())
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
        self._drop([range(len(self.messages))])
        self.ledger.context_used = 0
        if self.journal is not None:
            self.journal.cleared()

    def branch_off(self, index: int) -> None:
        """Leave the messages from `index` on as a branch, and continue before them."""
        now = self.present_branch()
        kept = Branch(0, now.numbers[:index], now.messages[:index], now.times[:index])
        self._continue(kept, resumed=None)  # which is new, so its `end` is not known yet

    def resume_branch(self, branch: Branch) -> None:
        """Continue a branch that was left, and leave the present one."""
        self.branches.remove(branch)
        self._continue(branch, resumed=branch.end)

    def compact(self, ranges: Sequence[range], summary: Message) -> list[Message]:
        """Put `summary` in the place of the messages at `ranges`, and return those.

        The archive, if there is one, stores them.
        """
        times = [self.times[i] for r in ranges for i in r]
        removed = self._drop(ranges)
        place = ranges[0].start
        self.messages.insert(place, summary)
        self.ledger.counts.insert(place, None)
        self.times.insert(place, datetime.now(UTC))
        self.numbers.insert(place, self._take_number())
        self.ledger.context_used = 0  # unknown until the next generation
        if self.journal is not None:
            self.journal.compacted(ranges, summary)
        if self.archive is not None:
            self.archive.keep(removed, times)
        return removed

    def _take_number(self) -> int:
        """A number for a message or for the end of a branch; each is given once."""
        self.next_number += 1
        return self.next_number - 1

    def present_branch(self) -> Branch:
        """The messages as they are now."""
        numbers, messages = tuple(self.numbers), tuple(self.messages)
        return Branch(self.next_number, numbers, messages, tuple(self.times))

    def _continue(self, branch: Branch, *, resumed: int | None) -> None:
        """Leave the present branch for another, which ended at `resumed`; None for a new one."""
        self.branches.append(self.present_branch())
        # the `end` of that branch, so that no message gets the number
        end = self._take_number()
        self.messages[:] = branch.messages
        self.numbers[:] = branch.numbers
        self.times[:] = branch.times
        self.ledger.counts[:] = [None] * len(branch.messages)
        self.ledger.context_used = 0
        if self.journal is not None:
            self.journal.branched(end, branch.numbers, resumed)

    def _remove(self, ranges: Sequence[range]) -> list[Message]:
        """Remove and return messages, which the journal calls evicted."""
        removed = self._drop(ranges)
        if self.journal is not None and removed:
            self.journal.messages_evicted(ranges)
        return removed

    def _drop(self, ranges: Sequence[range]) -> list[Message]:
        """Remove and return messages, with what runs parallel to them."""
        indexes = {index for span in ranges for index in span}
        removed = [self.messages[index] for index in sorted(indexes)]
        columns: list[list[Any]] = [self.messages, self.ledger.counts, self.times, self.numbers]
        for column in columns:
            column[:] = [value for index, value in enumerate(column) if index not in indexes]
        return removed


def _padded(values: list[T | None], number: int) -> list[T | None]:
    """The values as a new list of at least `number` items."""
    return [*values, *[None] * (number - len(values))]
