"""One PostgreSQL for the tests of a session, and a new database for each module."""

from collections.abc import Iterator

import pytest

from shepherd.storage.postgres import PostgresServer
from tests import postgres as real


@pytest.fixture(scope="session")
def postgres() -> Iterator[real.RealPostgres]:
    if problem := real.missing():
        pytest.skip(problem)
    server = real.RealPostgres()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(postgres: real.RealPostgres) -> Iterator[PostgresServer]:
    server = PostgresServer(postgres.new_database())
    yield server
    server.close()
