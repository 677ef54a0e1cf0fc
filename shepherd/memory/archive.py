"""What leaves one conversation goes into the memory."""

from collections.abc import Sequence
from datetime import UTC, datetime

from shepherd.memory.memory import Memory
from shepherd.memory.records import KeptMessage, Place
from shepherd.memory.text import kept_text
from shepherd.messages import Message, Role


class ConversationArchive:
    """The `SessionArchive` of the conversation `session` at `place`."""

    def __init__(self, memory: Memory, session: str, place: Place) -> None:
        self._memory = memory
        self._session = session
        self._place = place

    @property
    def keeps(self) -> bool:
        """Whether what it takes can be found again."""
        return self._memory.works

    def keep(self, messages: Sequence[Message], times: Sequence[datetime | None]) -> None:
        """Take messages; those without words (and results of the memory's own tools) go."""
        now = datetime.now(UTC)
        timed = zip(messages, times, strict=True)
        kept = [self._kept(message, said or now) for message, said in timed]
        if any(entry.text for entry in kept):
            self._memory.keep([entry for entry in kept if entry.text])

    def _kept(self, message: Message, said: datetime) -> KeptMessage:
        tool = message.name if message.role is Role.TOOL else ""
        text = kept_text(message)
        return KeptMessage(self._session, self._place, said, message.role, tool, text)
