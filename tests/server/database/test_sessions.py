"""Saved sessions do the same in files and in PostgreSQL."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.cli.serve.database import copy_sessions
from shepherd.config.paths import Paths
from shepherd.errors import SessionError
from shepherd.messages import INTERRUPTED, Message, ToolCall
from shepherd.session import Branch, Session
from shepherd.storage.postgres import PostgresServer
from shepherd.transcript import SessionStore
from shepherd.transcript.database import SessionDatabase
from shepherd.turn.fitting import message_groups
from tests.examples import examples
from tests.postgres import RealPostgres
from tests.transcripts import (
    CWD,
    Home,
    begin,
    fail,
    filled,
    journal,
    reopen,
    turns,
)


@dataclass(frozen=True)
class Place:
    """A store, and ways to change it from outside."""

    store: SessionStore
    set_time: Callable[[str, float], object]
    spoil: Callable[[str], object]


def in_files(directory: Path) -> Place:
    directory.mkdir(parents=True, exist_ok=True)

    def set_time(id: str, seconds: float) -> None:
        os.utime(directory / f"{id}.jsonl", (seconds, seconds))

    def spoil(id: str) -> None:
        (directory / f"{id}.jsonl").write_text("nonsense\n")

    return Place(SessionStore(directory), set_time, spoil)


def in_database(server: PostgresServer) -> Place:
    storage = SessionDatabase(server)
    storage.tables.migrate()

    def set_time(id: str, seconds: float) -> None:
        statement = "UPDATE sessions SET updated = to_timestamp(?) WHERE id = ?"
        storage.tables.run(lambda rows: rows.execute(statement, (seconds, id)))

    return Place(
        SessionStore(storage), set_time, lambda name: storage.add(name, b"nonsense\n", 1.0)
    )


@pytest.fixture(params=["files", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "files":
        return in_files(tmp_path / "sessions")
    return in_database(PostgresServer(request.getfixturevalue("postgres").new_database()))


@pytest.fixture
def store(place: Place) -> SessionStore:
    return place.store


OPERATIONS = st.lists(turns() | st.sampled_from(["evict", "clear", "reopen"]), max_size=8)


BRANCH_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["turn", "evict", "branch", "resume", "compact", "clear", "reopen"]),
        st.integers(0, 5),
    ),
    max_size=12,
)


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(OPERATIONS)
def test_what_a_session_went_through_comes_back(
    store: SessionStore, operations: list[list[Message] | str]
) -> None:
    session = begin(store)
    session.add(Message.user("first"))
    for operation in operations:
        if operation == "evict":
            session.evict(message_groups(session.messages)[:2])
        elif operation == "clear":
            session.clear()
        elif operation == "reopen":
            journal(session).close()
            before = session.messages
            session = reopen(store, session.id)
            assert session.messages == before
        else:
            assert isinstance(operation, list)
            for message in operation:
                session.add(message)
    journal(session).close()
    saved = store.read(session.id)
    assert list(saved.messages) == session.messages
    assert (saved.system_message, saved.warnings) == ("Be brief.", ())


def test_calls_without_results_are_answered(store: SessionStore) -> None:
    session = begin(store)
    calls = tuple(ToolCall(f"c{n}", "grep", {}) for n in range(3))
    session.add(Message.user("x"))
    session.add(Message.assistant("", tool_calls=calls))
    session.add(Message.tool(calls[1], "found"))
    journal(session).close()
    for _ in range(2):
        resumed = reopen(store, session.id)
        assert [m.content for m in resumed.messages[2:]] == ["found", INTERRUPTED, INTERRUPTED]
        journal(resumed).close()


def test_settings_that_change_are_kept(store: SessionStore) -> None:
    session = begin(store)
    journal(session).system_message_changed("before the first message")
    session.add(Message.user("x"))
    journal(session).model_changed("bigger")
    saved = store.read(session.id)
    assert (saved.system_message, saved.model) == ("before the first message", "bigger")
    journal(session).system_message_changed("later")
    assert store.read(session.id).system_message == "later"
    journal(session).close()


def test_half_a_surrogate_pair_survives(store: SessionStore) -> None:
    session = begin(store)
    session.add(Message.user("\ud800"))
    assert store.read(session.id).messages == (Message.user("\ud800"),)
    journal(session).close()


def test_a_session_is_open_once(store: SessionStore) -> None:
    session = filled(store)
    first = reopen(store, session.id)
    with pytest.raises(SessionError, match="open in another"):
        store.reopen(session.id, fail)
    with pytest.raises(SessionError, match="open in another"):
        store.delete(session.id)
    assert len(store.read(session.id).messages) == 16
    journal(first).close()
    journal(reopen(store, session.id)).close()
    store.delete(session.id)
    with pytest.raises(SessionError, match="No session"):
        store.find(session.id)


def test_sessions_are_found_by_directory_and_beginning(place: Place) -> None:
    store = place.store
    ids = [filled(store, count=1).id for _ in range(3)]
    for age, name in enumerate(ids):
        place.set_time(name, 1_000_000 - age)
    place.spoil("broken")
    assert store.latest(CWD) == ids[0]
    assert store.find(ids[1][:-1]) == ids[1]
    with pytest.raises(SessionError, match="start of"):
        store.find(ids[0][:2])
    with pytest.raises(SessionError, match="No saved session of /else"):
        store.latest(Path("/else"))
    summaries, problems = store.summaries()
    assert [s.id for s in summaries] == ids
    assert summaries[0].updated.timestamp() == 1_000_000
    assert (summaries[0].title, summaries[0].messages) == ("question 0", 4)
    assert len(problems) == 1


def test_a_session_in_which_nothing_was_said_is_passed_over(place: Place) -> None:
    store = place.store
    said = filled(store, count=1).id
    cleared = begin(store)
    cleared.add(Message.user("never mind"))
    cleared.clear()
    journal(cleared).close()
    place.set_time(said, 1_000_000)
    assert store.find(cleared.id) == cleared.id
    assert store.latest(CWD) == said
    assert [s.id for s in store.summaries()[0]] == [said]


def test_of_sessions_written_at_once_the_one_begun_later_is_newer(place: Place) -> None:
    store = place.store
    ids = [filled(store, count=1).id for _ in range(5)]
    for name in ids:
        place.set_time(name, 1_000_000)
    newest_first = sorted(ids, reverse=True)
    assert list(store.session_ids(CWD)) == newest_first
    assert [summary.id for summary in store.summaries()[0]] == newest_first


@settings(
    max_examples=examples(240),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(BRANCH_OPERATIONS)
def test_all_branches_come_back(
    store: SessionStore, tmp_path: Path, operations: list[tuple[str, int]]
) -> None:
    home = Home(tmp_path, store)
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
    journal(again).close()


def test_files_are_copied_into_a_database(tmp_path: Path, postgres: RealPostgres) -> None:
    paths = Paths.from_env({"HOME": str(tmp_path)})
    files = in_files(paths.sessions)
    whole, torn, cut = (filled(files.store, count=2) for _ in range(3))
    for age, session in enumerate((whole, torn, cut)):
        path = paths.sessions / f"{session.id}.jsonl"
        path.write_bytes(path.read_bytes()[: (None, -9, -1)[age]])
        files.set_time(session.id, 1_000_000 - age)
    files.spoil("broken")
    server = PostgresServer(postgres.new_database())
    problem, result = copy_sessions(paths, server)
    assert "not a session" in problem
    assert result == "Sessions: 3 copied."
    assert list(copy_sessions(paths, server))[-1] == "Sessions: 0 copied."
    store = SessionStore(SessionDatabase(server))
    assert store.summaries()[0] == files.store.summaries()[0][:3]
    for session in (whole, torn, cut):
        assert store.read(session.id).messages == files.store.read(session.id).messages
        assert store.read(session.id).warnings == ()
    again = reopen(store, torn.id)
    again.add(Message.user("on"))
    journal(again).close()
    assert store.read(torn.id).messages[-1] == Message.user("on")
