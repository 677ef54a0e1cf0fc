"""Branches and summaries of a session come back from its file, whatever happened to it."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.conversation.session_start import Notices, SessionStart, begin_session
from shepherd.errors import SessionError
from shepherd.eviction import message_groups
from shepherd.messages import Message
from shepherd.session import Branch, Session
from shepherd.transcript import SessionStore, Transcript
from tests.examples import examples

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["turn", "evict", "branch", "resume", "compact", "clear", "reopen"]),
        st.integers(0, 5),
    ),
    max_size=12,
)


class Home:
    """Sessions of one directory, opened as frontends open them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.paths = Paths.from_env({"HOME": str(base)})
        self.store = SessionStore(self.paths.sessions)

    def open(self, id: str = "") -> Session:
        config = load_config(self.base, {"HOME": str(self.base)})
        start = SessionStart(id=id)
        return begin_session(config, self.paths, self.base, start, Notices())[0]

    def reopen(self, session: Session) -> Session:
        close(session)
        return self.open(session.id)


def close(session: Session) -> None:
    assert isinstance(session.journal, Transcript)
    session.journal.close()


def numbers(branches: list[Branch]) -> list[tuple[int, tuple[int | None, ...]]]:
    return [(branch.end, branch.numbers) for branch in branches]


def apply(session: Session, name: str, place: int) -> None:
    groups = message_groups(session.messages)
    match name:
        case "turn":
            session.add(Message.user(f"question {session.next_number}"))
            session.add(Message.assistant(f"answer {session.next_number}"))
        case "evict":
            session.evict(groups[:place])
        case "branch" if session.messages:
            session.branch_off(place % len(session.messages))
        case "resume" if session.branches:
            session.resume_branch(session.branches[place % len(session.branches)])
        case "compact" if groups:
            session.compact(groups[: place + 1], Message.hint("summary"))
        case "clear":
            session.clear()
        case _:
            pass


@settings(
    max_examples=examples(400),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(OPERATIONS)
def test_all_branches_come_back(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    session = home.open()
    session.add(Message.user("first"))
    for name, place in operations:
        if name == "reopen":
            session = home.reopen(session)
        else:
            apply(session, name, place)
    again = home.reopen(session)
    assert again.messages == session.messages
    assert again.numbers == session.numbers
    assert numbers(again.branches) == numbers(session.branches)
    assert again.next_number == session.next_number
    close(again)


def branched(home: Home) -> tuple[Session, Path]:
    """A session whose second question was asked again."""
    session = home.open()
    for name in ("one", "two"):
        session.add(Message.user(name))
        session.add(Message.assistant(name.upper()))
    session.branch_off(2)
    session.add(Message.user("three"))
    close(session)
    return session, home.store.find(session.id)


def test_an_older_shepherd_refuses_a_file_with_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    plain = home.open()
    plain.add(Message.user("plain"))
    close(plain)
    session, path = branched(home)
    assert json.loads(path.read_text().splitlines()[0])["version"] == 2
    monkeypatch.setattr("shepherd.transcript.reading.VERSION", 1)
    with pytest.raises(SessionError, match="written by a newer Shepherd"):
        home.store.read(session.id)
    assert home.store.read(plain.id).messages, "a file without branches stays readable"


def test_a_branch_of_a_file_that_was_cut_anywhere_loads(tmp_path: Path) -> None:
    home = Home(tmp_path)
    session, path = branched(home)
    data = path.read_bytes()
    for length in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:length])
        saved = home.store.read(session.id)
        contents = [message.content for message in saved.messages]
        assert contents in (
            ["one", "ONE", "two", "TWO"][: len(contents)],
            ["one", "ONE", "three"],
        )
