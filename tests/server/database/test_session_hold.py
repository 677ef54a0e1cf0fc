"""A session in PostgreSQL belongs to one process, whatever happens to it and to the database."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from shepherd.errors import SessionError
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.storage.postgres import Address, PostgresServer
from shepherd.transcript import SessionStore
from shepherd.transcript.database import SessionDatabase, SessionHold
from tests.patience import PATIENCE, POLL
from tests.postgres import PASSWORD, RealPostgres
from tests.transcripts import begin, fail, journal, reopen

NEVER = 1e6


def store_in(address: Address, check_seconds: float = NEVER) -> SessionStore:
    """A store with connections of its own, as another process has it."""
    storage = SessionDatabase(PostgresServer(address), check_seconds)
    storage.tables.migrate()
    return SessionStore(storage)


@pytest.fixture
def address(postgres: RealPostgres) -> Address:
    return postgres.new_database()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL)


def contents(store: SessionStore, id: str) -> list[str]:
    return [message.content for message in store.read(id).messages]


def disconnect(address: Address) -> None:
    """End all connections to a database, as a lost network does."""
    import psycopg

    statement = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(address.url, password=PASSWORD) as connection:
        connection.execute(statement)


def test_a_killed_database_loses_nothing_and_the_session_stays_locked(
    postgres: RealPostgres, address: Address
) -> None:
    store, notices = store_in(address, 0.05), list[str]()
    session = begin(store, notices.append)
    session.add(Message.user("before"))
    postgres.kill()
    for text in ("one", "two"):
        session.add(Message.user(text))
    session.branch_off(1)
    session.add(Message.user("three"))
    (notice,) = notices
    assert "saved once the database answers" in notice
    assert PASSWORD not in notice
    postgres.start()
    other = store_in(address)
    until(lambda: contents(other, session.id) == ["before", "three"])
    with pytest.raises(SessionError, match="open in another"):
        other.reopen(session.id, fail)
    session.add(Message.user("four"))
    assert contents(other, session.id)[-1] == "four"
    journal(session).close()
    again = reopen(other, session.id)
    assert [m.content for m in again.messages] == ["before", "three", "four"]
    journal(again).close()
    assert len(notices) == 1


def test_a_lost_connection_is_made_again_at_once(address: Address) -> None:
    session = begin(store_in(address))
    session.add(Message.user("one"))
    disconnect(address)
    session.add(Message.user("two"))
    assert contents(store_in(address), session.id) == ["one", "two"]
    journal(session).close()


def test_a_process_that_lost_its_session_to_another_writes_no_more(address: Address) -> None:
    store, notices = store_in(address), list[str]()
    session = begin(store, notices.append)
    session.add(Message.user("mine"))
    disconnect(address)
    other = store_in(address)
    taken = reopen(other, session.id)
    taken.add(Message.user("theirs"))
    session.add(Message.user("late"))
    session.add(Message.user("later"))
    assert [text.rpartition(": ")[2] for text in notices] == [
        f"Session {session.id} is open in another Shepherd."
    ]
    journal(session).close()
    journal(taken).close()
    assert contents(other, session.id) == ["mine", "theirs"]
    notices.clear()
    deleted, _ = other.reopen(session.id, notices.append)
    disconnect(address)
    store_in(address).delete(session.id)
    deleted.message_added(Message.user("nowhere"))
    assert len(notices) == 1
    assert other.storage.ids() == []


def test_the_lock_of_a_lost_connection_is_waited_for(address: Address) -> None:
    """The database has not noticed yet that the first connection is lost."""
    import psycopg

    server = PostgresServer(address)
    storage = SessionDatabase(server)
    storage.tables.migrate()
    hold = SessionHold(server, "mine")
    hold.write([(0, b"header")])
    disconnect(address)
    with psycopg.connect(address.url, password=PASSWORD, autocommit=True) as lost:
        lost.execute("SELECT pg_advisory_lock(hashtextextended('sessions:mine', 0))")
        with pytest.raises(psycopg.OperationalError, match="terminat"):
            hold.write([(1, b"line")])
        with pytest.raises(psycopg.OperationalError, match="still has the lock"):
            hold.write([(1, b"line")])

    def writes() -> bool:
        try:
            hold.write([(1, b"line")])
        except psycopg.OperationalError:
            return False
        return True

    until(writes)
    hold.release()
    assert storage.read("mine") == b"header\nline\n"


WRITER = """
import itertools, sys
from pathlib import Path
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.storage.postgres import Address
from shepherd.storage.postgres import PostgresServer
from shepherd.transcript import SessionStore
from shepherd.transcript.database import SessionDatabase
address = Address(sys.argv[1], sys.stdin.readline().strip())
store = SessionStore(SessionDatabase(PostgresServer(address)))
journal = store.create(Path("/"), "m", "s", print)
session = Session("s", journal=journal)
for number in itertools.count():
    session.add(Message.user(f"{number} " + "x" * 20000))
    print(number, flush=True)
"""


def test_a_killed_process_loses_at_most_the_line_it_was_writing(address: Address) -> None:
    store = store_in(address)
    command = [sys.executable, "-c", WRITER, address.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{PASSWORD}\n")
        process.stdin.flush()
        output = [process.stdout.readline() for _ in range(7)]
        (name,) = store.storage.ids()
        with pytest.raises(SessionError, match="open in another"):
            store.delete(name)
        process.send_signal(signal.SIGKILL)
        output += process.stdout.readlines()
    written = [int(line) for line in output if line.endswith("\n")]
    resumed = list[Session]()

    def is_free() -> bool:
        try:
            resumed.append(reopen(store, name))
        except SessionError:
            return False
        return True

    until(is_free)
    session = resumed[0]
    assert [int(m.content.split()[0]) for m in session.messages][: len(written)] == written
    assert len(session.messages) <= len(written) + 1
    session.add(Message.user("on"))
    journal(session).close()
    assert contents(store, name)[-1] == "on"
