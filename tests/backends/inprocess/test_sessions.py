"""A session's date: templates that ask for it must be told the same every time."""

from datetime import UTC, datetime

from shepherd.backends.inprocess.sessions import SessionMemory
from shepherd.session import Session


def test_a_resumed_sessions_date_is_that_of_its_beginning() -> None:
    began = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
    session = Session(id="resumed", began=began)
    for memory in (SessionMemory(), SessionMemory()):
        told = memory.conversation(session).began
        assert told == began
        assert told is not None
        assert told.tzinfo is not None


def test_a_new_sessions_date_is_that_of_its_first_request() -> None:
    memory, session = SessionMemory(), Session(id="new")
    assert memory.conversation(session).began == memory.conversation(session).began
