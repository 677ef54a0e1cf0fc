"""The system message of a conversation with what its files say, fixed once a message is sent."""

from shepherd.conversation.session_start import Notices
from shepherd.knowledge import instructions
from shepherd.knowledge.instructions import USE_SKILL
from shepherd.knowledge.knowledge import Knowledge
from shepherd.session import Session


class SystemPrompt:
    """Fits the knowledge of a conversation into the context of the model that will answer.

    A session that has messages keeps its text, because the model has read it. A system message
    that the user replaced stays, too.
    """

    def __init__(self, knowledge: Knowledge, notices: Notices) -> None:
        self._knowledge = knowledge
        self._notices = notices
        self._base = ""
        self._latest = ""

    def begin(self, session: Session, base: str) -> None:
        """Follow another session; `base` is the system message that a new one begins with."""
        current = session.system_message
        own, knowledge = instructions.split(current)
        self._base = own if current == base or (knowledge and session.messages) else ""
        self._latest = current
        if session.messages:
            self._report_changes(session.system_message)

    def fitted(self, session: Session, context_size: int) -> str:
        """The system message for a context of that many tokens, 0 if it is unknown."""
        current = session.system_message
        if not self._base or session.messages or current != self._latest:
            return current
        offers_skills = any(tool.name == USE_SKILL for tool in session.tools)
        text = self._knowledge.system_message(self._base, context_size, offers_skills=offers_skills)
        if text != current:
            self._latest = text
            self._report_cuts(text)
        return text

    def renewed(self, session: Session, context_size: int) -> str:
        """`fitted` with the current files of instructions, for a session that was cleared."""
        self._knowledge = self._knowledge.reread()
        return self.fitted(session, context_size)

    def _report_cuts(self, text: str) -> None:
        names = ", ".join(part.name for part in instructions.parts(text) if part.cut)
        if names:
            self._notices.tell(
                f"{names}: only the beginning is in the prompt, because of the model's context or "
                "knowledge.max_bytes."
            )

    def _report_changes(self, message: str) -> None:
        names = ", ".join(self._knowledge.changed(message))
        if names:
            self._notices.tell(
                f"{names}: not as this session read it; it keeps the earlier text, and a new "
                "session reads the current one."
            )
