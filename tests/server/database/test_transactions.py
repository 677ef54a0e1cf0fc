"""A transaction is done again if its connection is lost."""

import sys

import pytest

from shepherd.errors import ConfigError, ShepherdError
from shepherd.storage.postgres import Address, PostgresDatabase, PostgresServer
from shepherd.storage.rows import Rows

TABLE = "CREATE TABLE counted (number BIGINT NOT NULL); INSERT INTO counted VALUES (0)"


class CountError(ShepherdError):
    """The count can't be used."""


@pytest.fixture(scope="module")
def counted(server: PostgresServer) -> PostgresDatabase:
    return PostgresDatabase(server, "counted", (TABLE,), CountError)


def count(rows: Rows) -> int:
    rows.execute("UPDATE counted SET number = number + 1")
    return int(rows.execute("SELECT number FROM counted").fetchone()[0])


def number(rows: Rows) -> int:
    return int(rows.execute("SELECT number FROM counted").fetchone()[0])


@pytest.mark.parametrize("is_late", [False, True])
def test_a_lost_connection_is_made_again(counted: PostgresDatabase, *, is_late: bool) -> None:
    before, attempts = counted.run(number, write=False), list[int]()

    def lose_once(rows: Rows) -> int:
        attempts.append(len(attempts))
        result = count(rows) if is_late else 0
        if len(attempts) == 1:
            rows.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return result if is_late else count(rows)

    assert counted.run(lose_once) == before + 1
    assert len(attempts) == 2
    assert counted.run(number, write=False) == before + 1


def test_an_error_of_the_work_changes_nothing(counted: PostgresDatabase) -> None:
    def fail(rows: Rows) -> None:
        count(rows)
        raise ValueError("no")

    before = counted.run(number, write=False)
    with pytest.raises(ValueError, match="no"):
        counted.run(fail)
    with pytest.raises(CountError, match="syntax error"):
        counted.run(lambda rows: rows.execute("SELEC"))
    assert counted.run(number, write=False) == before


def test_without_psycopg_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    with pytest.raises(ConfigError, match=r"pip install 'psycopg\[binary,pool\]'"):
        PostgresServer(Address("postgresql://nobody@localhost/none")).check()
