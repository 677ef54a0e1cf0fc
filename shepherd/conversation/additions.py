"""The messages that join a conversation during a turn."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from shepherd.config.section import ApproveMode
from shepherd.messages import Message, ToolSpec, with_notes
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.plan import PRESENT_PLAN

Before: TypeAlias = Callable[[], Awaitable[Sequence[Message]]]
"""Messages that stand before the next prompt."""

Preface: TypeAlias = Callable[[], Awaitable[str]]
"""A text for the model that goes with the next prompt, "" for none."""

TurnEnd: TypeAlias = Callable[[str, int], Awaitable[str]]
"""`turn_end(answer, continued)`: the text that continues the turn, "" for none.

`continued` counts how often this turn was continued.
"""


class Steering(Struct, frozen=True):
    """A message of the user for the running turn; `text` is the message as it was typed."""

    message: Message
    text: str


class Additions(Struct, eq=False):
    """What joins a session during a turn: messages of the user, notes, and texts of hooks.

    A message that `steer` adds joins after the next results of tools, or after the last answer,
    which continues the turn. A `note` of Shepherd joins at the same place but does not continue a
    turn; it then goes with the next prompt. `before` returns messages that stand before a prompt,
    `prefaces` go with it, and `turn_ends` may continue a turn.
    """

    before: Sequence[Before] = ()
    prefaces: Sequence[Preface] = ()
    turn_ends: Sequence[TurnEnd] = ()
    # what waits to join: messages of the user, and notes
    _steering: list[Steering] = field(default_factory=list[Steering])
    _notes: list[str] = field(default_factory=list[str])
    # the notes that joined last, and how often the running turn was continued
    _joined_notes: list[Message] = field(default_factory=list[Message])
    _times_continued: int = 0

    @property
    def waiting(self) -> Sequence[str]:
        """The messages of the user that have not joined yet, as they were typed."""
        return [steering.text for steering in self._steering]

    def steer(self, message: Message, text: str = "") -> None:
        """Let a message of the user join the running turn."""
        self._steering.append(Steering(message, text or message.plain_text))

    def take_back(self) -> str | None:
        """Withdraw the last message of the user that has not joined; None if there is none."""
        return self._steering.pop().text if self._steering else None

    def take_all(self) -> list[Steering]:
        """Withdraw all messages of the user, as at the end of a turn that failed."""
        steering, self._steering = self._steering, []
        return steering

    def note(self, text: str) -> None:
        """Let a text join the running turn, or the next prompt; the user must have read it."""
        self._notes.append(text)

    async def before_prompt(self) -> Sequence[Message]:
        """The messages that stand before the next prompt."""
        return [message for source in self.before for message in await source()]

    async def opening(self, prompt: Message) -> Message:
        """The prompt with all notes; a prompt without notes stays as it is."""
        self._times_continued = 0  # a prompt begins another turn
        for preface in self.prefaces:
            if text := await preface():
                self.note(text)  # which waits for the next prompt if this one is stopped meanwhile
        return with_notes(prompt, self._take_notes())

    async def between_rounds(self, *, ending: bool) -> Sequence[Message]:
        """The notes, then the user's messages; at the turn's end no notes alone."""
        if ending and not self._steering:  # a note must not continue the turn
            return []
        self._joined_notes = [Message.hint(text) for text in self._take_notes()]
        return [*self._joined_notes, *(steering.message for steering in self.take_all())]

    def was_displayed(self, message: Message) -> bool:
        """Whether it is a note, which the user has read as a notice."""
        # by identity: a message of the user may have the same text
        return any(message is note for note in self._joined_notes)

    async def at_end(self, answer: str) -> Sequence[Message]:
        """The texts of those `turn_ends` that continue the turn."""
        texts = [await turn_end(answer, self._times_continued) for turn_end in self.turn_ends]
        hints = [Message.hint(text) for text in texts if text]
        if hints:  # a `turn_end` may limit how often it continues a turn
            self._times_continued += 1
        return hints

    def _take_notes(self) -> list[str]:
        """The notes that wait, each of which joins once."""
        notes, self._notes = self._notes, []
        return notes


BEGIN = (
    "Plan mode is on: change nothing, and run nothing that could change anything; such calls are "
    "refused. Look at what you need, then {end}."
)
WITH_TOOL = f"call {PRESENT_PLAN} with the plan"
WITHOUT_TOOL = "answer with a plan"
END = "Plan mode is off: you may make changes."


class PlanNotes(Struct):
    """A `Preface`: the note on the mode that goes with a prompt; `tools` are the model's."""

    policy: PermissionPolicy
    tools: Callable[[], Iterable[ToolSpec]]
    _plan_mode_was_on: bool = False

    async def __call__(self) -> str:
        """The note, "" if the model needs none."""
        was_on, is_on = self._plan_mode_was_on, self.policy.mode is ApproveMode.PLAN
        self._plan_mode_was_on = is_on
        if not is_on:
            return END if was_on else ""  # the end of the mode is told once
        has_tool = any(tool.name == PRESENT_PLAN for tool in self.tools())
        return BEGIN.format(end=WITH_TOOL if has_tool else WITHOUT_TOOL)
