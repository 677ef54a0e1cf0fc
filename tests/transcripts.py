"""Saved sessions for tests: how they are made, opened and checked."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.conversation.session_start import Notices, SessionStart, begin_session
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.transcript import SessionStore, Transcript

CWD = Path("/somewhere")
TEXTS = st.text(max_size=20)
CALLS = st.builds(
    ToolCall,
    st.uuids().map(str),
    st.sampled_from(["read_file", "grep"]),
    st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS, max_size=3),
)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A valid turn: user, any number of calls with their results, an answer."""
    messages = [Message.user(draw(TEXTS))]
    for _ in range(draw(st.integers(0, 2))):
        calls = draw(st.lists(CALLS, min_size=1, max_size=3, unique_by=lambda c: c.id))
        messages.append(Message.assistant(draw(TEXTS), draw(TEXTS), tuple(calls)))
        messages += [Message.tool(call, draw(TEXTS)) for call in calls]
    return [*messages, Message.assistant(draw(TEXTS))]


def fail(text: str) -> None:
    raise AssertionError(text)


def begin(store: SessionStore, on_failure: Callable[[str], None] = fail) -> Session:
    transcript = store.create(CWD, "pup", "Be brief.", on_failure)
    return Session("Be brief.", id=transcript.header.id, journal=transcript)


def journal(session: Session) -> Transcript:
    assert isinstance(session.journal, Transcript)
    return session.journal


def reopen(store: SessionStore, id: str) -> Session:
    transcript, saved = store.reopen(id, fail)
    return Session(saved.system_message, list(saved.messages), id=saved.id, journal=transcript)


def filled(store: SessionStore, count: int = 4) -> Session:
    """A closed session with `count` turns of a call each."""
    session = begin(store)
    for number in range(count):
        call = ToolCall(f"call_{number}", "read_file", {"path": "ä\u2028.txt"})
        session.add(Message.user(f"question {number}"))
        session.add(Message.assistant("", "hm", (call,)))
        session.add(Message.tool(call, "content"))
        session.add(Message.assistant(f"answer {number}"))
    journal(session).close()
    return session


def is_valid(messages: list[Message]) -> bool:
    """Whether each call has its result right behind it and each result its call."""
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return False
        waiting = [call.id for call in message.tool_calls]
    return not waiting


class Home:
    """Sessions of one directory, opened as frontends open them."""

    def __init__(self, base: Path, store: SessionStore | None = None) -> None:
        self.base = base
        self.paths = Paths.from_env({"HOME": str(base)})
        self.store = store or SessionStore(self.paths.sessions)

    def open(self, id: str = "") -> Session:
        config = load_config(self.base, {"HOME": str(self.base)})
        start = SessionStart(id=id)
        return begin_session(config, self.store, self.base, start, Notices(), self.base / "no")[0]

    def notices_of(self, session: Session) -> str:
        """What a frontend would tell that continues the session, which is closed."""
        journal(session).close()
        notices, told = Notices(), list[str]()
        notices.listen(told.append)
        config = load_config(self.base, {"HOME": str(self.base)})
        start = SessionStart(id=session.id)
        session, _ = begin_session(config, self.store, self.base, start, notices, self.base / "no")
        journal(session).close()
        return "\n".join(told)

    def reopen(self, session: Session) -> Session:
        journal(session).close()
        return self.open(session.id)


def branched(home: Home) -> Session:
    """A session whose second question was asked again."""
    session = home.open()
    for name in ("one", "two"):
        session.add(Message.user(name))
        session.add(Message.assistant(name.upper()))
    session.branch_off(2)
    session.add(Message.user("three"))
    journal(session).close()
    return session
