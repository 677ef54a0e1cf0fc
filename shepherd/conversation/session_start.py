"""Starts a conversation, a new one or a saved one, and its system message with what files say."""

import secrets
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from shepherd.config.settings import Config
from shepherd.errors import SessionError, SessionOpenError
from shepherd.knowledge import instructions
from shepherd.knowledge.knowledge import Knowledge
from shepherd.messages import Message, Role
from shepherd.session import Session
from shepherd.transcript import SavedSession, SessionStore, Transcript, records

SYSTEM_MESSAGE = (
    "You are Shepherd, an agent in the user's terminal. Use the tools to look before you answer; "
    "say plainly what you did. Working directory: {cwd}"
)
SYSTEM_MESSAGE_WITHOUT_TOOLS = (
    "You are Shepherd, an assistant in the user's terminal. Working directory: {cwd}"
)


UNFINISHED = "The last answer has no end; what was written of it is kept."
UNANSWERED = "The last message has no answer."


class SessionStart(Struct, frozen=True):
    """The conversation to continue: the latest of this directory, one by id, or none.

    `store` has the saved ones, by default the user's files. With `or_new`, a new one begins if the
    one with the id can't be continued. With `branch`, a copy of it continues.
    """

    latest: bool = False
    id: str = ""
    store: SessionStore | None = None
    or_new: bool = False
    branch: bool = False


class Notices(Struct):
    """Keeps sentences until there is a listener, then passes them on."""

    _waiting: list[str] = field(default_factory=list[str])
    _listener: Callable[[str], None] | None = None

    def tell(self, text: str) -> None:
        """Pass `text` on, now or once there is a listener."""
        if self._listener is None:
            self._waiting.append(text)
        else:
            self._listener(text)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Pass the waiting and all later sentences to `listener`; replaces the previous one."""
        self._listener = listener
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            listener(text)


class CurrentSession(Struct):
    """The session that a conversation is in; its parts ask for it, because it can change."""

    session: Session

    def __call__(self) -> Session:
        """The session that the conversation is in now."""
        return self.session


def begin_session(
    config: Config,
    store: SessionStore,
    cwd: Path,
    start: SessionStart,
    notices: Notices,
    served: Path,
) -> tuple[Session, Transcript | None]:
    """The session that `start` names and its transcript, if it is saved; raises SessionError.

    `served` has the addresses of the sessions that are shared.
    """
    try:
        reopened = _reopened(store, cwd, start, notices)
    except SessionOpenError as error:
        raise SessionError(f"{error} {_ways_in(error.id, served)}") from error
    if reopened is not None:
        transcript, saved = reopened
        begun = _resumed(transcript, saved, config, cwd, notices)
    else:
        begun = _new(store, config, cwd, notices)
    session = begun[0]
    session.sampling = config.sampling.to_sampling()  # the settings of now hold, not the saved
    session.thinking = config.model.thinking
    return begun


def _reopened(
    store: SessionStore, cwd: Path, start: SessionStart, notices: Notices
) -> tuple[Transcript, SavedSession] | None:
    """The saved session that `start` names; None if a new one begins, which a notice may say."""
    saved_id = start.id
    try:
        if start.latest and not saved_id:
            saved_id = store.latest(cwd)
        if saved_id and start.branch:
            source, saved_id = saved_id, store.branch(saved_id)
            notices.tell(f"This is a copy of session {source}, which stays as it is.")
        return store.reopen(saved_id, notices.tell) if saved_id else None
    except SessionError as error:
        if saved_id and not start.or_new:  # without an id, the directory has no session to continue
            raise
        notices.tell(f"{error} This is a new one.")
        return None


def _ways_in(id: str, served: Path) -> str:
    """How to talk in a session that another process has open."""
    copying = f"`shepherd --resume {id} --branch` goes on with a copy of it."
    for file in served.glob("*"):
        shared, _, address = file.read_text(encoding="utf-8").strip().partition("\n")
        if shared == id and address:
            return f"`shepherd --connect {address}` joins it there; {copying}"
    return copying


def default_system_message(config: Config, cwd: Path) -> str:
    """The system message in the settings, or Shepherd's own."""
    if config.model.system_message is not None:
        return config.model.system_message
    text = SYSTEM_MESSAGE if config.model.tools else SYSTEM_MESSAGE_WITHOUT_TOOLS
    return text.format(cwd=cwd)


def _new(
    store: SessionStore, config: Config, cwd: Path, notices: Notices
) -> tuple[Session, Transcript | None]:
    """A session without messages; without a transcript if the settings save none."""
    text = default_system_message(config, cwd)
    if not config.terminal.save_sessions:
        return Session(text, id=secrets.token_hex(6)), None
    transcript = store.create(cwd, config.model.label, text, notices.tell)
    return _session(text, [], transcript), transcript


def _session(system: str, messages: list[Message], transcript: Transcript) -> Session:
    """A session that the transcript saves, with the transcript's id and date."""
    header = transcript.header
    began = records.parse_time(header.created)
    return Session(system, messages, id=header.id, began=began, journal=transcript)


def _resumed(
    transcript: Transcript, saved: SavedSession, config: Config, cwd: Path, notices: Notices
) -> tuple[Session, Transcript]:
    """The session as it was saved, with notices of what is different now."""
    session = _session(saved.system_message, list(saved.messages), transcript)
    session.times[:], session.numbers[:] = saved.times, saved.numbers
    session.next_number, session.branches = saved.next_number, list(saved.branches)
    for warning in saved.warnings:
        notices.tell(warning)
    if saved.is_unfinished:
        notices.tell(UNFINISHED)
    elif saved.messages and saved.messages[-1].role is not Role.ASSISTANT:
        notices.tell(UNANSWERED)
    if saved.header.cwd != str(cwd):
        notices.tell(f"This session was begun in {saved.header.cwd}; tools now work in {cwd}.")
    # a system message in the settings replaces the saved one; the knowledge still follows it
    configured = config.model.system_message
    base, knowledge = instructions.split(saved.system_message)
    if configured is not None and configured != base:
        # an empty message means none at all, so the knowledge goes, too
        session.system_message = f"{configured}{knowledge}" if configured else ""
        transcript.system_message_changed(session.system_message)
    return session, transcript


class SystemPrompt(Struct):
    """Fits the knowledge of a conversation into the context of the model that will answer.

    A session that has messages keeps its text, because the model has read it. A system message
    that the user replaced stays, too.
    """

    knowledge: Knowledge
    notices: Notices
    _base: str = ""
    """The system message without knowledge; "" if it is the user's own and never changed."""
    _last_written_message: str = ""
    """What `begin` and `fit` left as the system message; any other one is the user's."""

    def begin(self, session: Session, base: str) -> None:
        """Follow another session; `base` is the system message that a new one begins with."""
        current = session.system_message
        own, knowledge = instructions.split(current)
        # only a message of Shepherd's, or one with knowledge in it, gets knowledge again
        self._base = own if current == base or (knowledge and session.messages) else ""
        self._last_written_message = current
        if session.messages:
            self._report_changes(session.system_message)

    def fit(self, session: Session, context_size: int) -> str:
        """The system message for a context of that many tokens, 0 if it is unknown."""
        current = session.system_message
        is_of_user = not self._base or current != self._last_written_message
        if is_of_user or session.messages:  # the model has read it already
            return current
        offers_skills = any(tool.name == instructions.USE_SKILL for tool in session.tools)
        text = self.knowledge.system_message(self._base, context_size, offers_skills=offers_skills)
        if text != current:
            self._last_written_message = text
            self._report_cuts(text)
        return text

    def reread(self) -> None:
        """Let `fit` use the files of instructions as they are now."""
        self.knowledge = self.knowledge.reread()

    def _report_cuts(self, text: str) -> None:
        """Tell the user which files of instructions did not fit into the system message."""
        names = ", ".join(part.name for part in instructions.parts(text) if part.cut)
        if names:
            self.notices.tell(
                f"{names}: only the beginning is in the prompt, because of the model's context or "
                "knowledge.max_bytes."
            )

    def _report_changes(self, message: str) -> None:
        """Tell the user which files of instructions differ from a saved system message."""
        names = ", ".join(self.knowledge.changed(message))
        if names:
            self.notices.tell(
                f"{names}: not as this session read it; it keeps the earlier text, and a new "
                "session reads the current one."
            )
