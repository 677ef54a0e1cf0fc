"""The database of the settings; the stores of the server, there or in files; and their copy."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from shepherd.config.paths import Paths
from shepherd.config.secrets import ENVIRONMENT, Secrets
from shepherd.config.section import AuthMode
from shepherd.config.settings import Config
from shepherd.errors import ConfigError, SessionError
from shepherd.server.access import shared
from shepherd.server.access.keys import Keys, KeyStore, KeyStoreError
from shepherd.server.access.shared_keys import KEYS_GRACE
from shepherd.server.access.usage import UsageStore, open_usage
from shepherd.server.openai_responses.store import open_responses, responses_in
from shepherd.storage.postgres import Address, PostgresDatabase, PostgresServer, check_installed
from shepherd.storage.rows import Database, Rows
from shepherd.transcript import SessionStore, records
from shepherd.transcript.database import SessionDatabase
from shepherd.transcript.storage import SessionFiles

PASSWORD_NAME = "server.database"
"""The name of the password in the file of credentials and in the keyring."""


def configured_database(config: Config, env: Mapping[str, str]) -> PostgresServer | None:
    """The database of `server.database`, None without one.

    Raises ConfigError if its password is missing, or psycopg.
    """
    section = config.server
    if not section.database:
        return None
    check_installed()
    password = _password(section.database_password, env)
    return PostgresServer(Address(section.database, password))


def prepared_database(config: Config, env: Mapping[str, str]) -> PostgresServer | None:
    """As `configured_database`, with current tables; raises DatabaseError if it can't be used."""
    database = configured_database(config, env)
    if database is not None:
        for store in stores_of(database):
            store.migrate()
    return database


def required_database(config: Config, env: Mapping[str, str]) -> PostgresServer:
    """The database of `server.database`; raises ConfigError, also if there is none."""
    database = configured_database(config, env)
    if database is None:
        raise ConfigError(
            "There is no database: `shepherd config set server.database postgresql://…` sets it."
        )
    return database


def stores_of(server: PostgresServer) -> list[PostgresDatabase]:
    """All that Shepherd keeps in a database."""
    return [
        shared.key_database_in(server),
        shared.usage_in(server),
        shared.limits_in(server),
        responses_in(server),
        SessionDatabase(server).tables,
    ]


def session_store(database: PostgresServer | None, paths: Paths) -> SessionStore:
    """The sessions in the database, or in the user's files; raises SessionError."""
    if database is not None:
        storage = SessionDatabase(database)
        storage.tables.migrate()
        return SessionStore(storage)
    return SessionStore(paths.sessions)


def key_store(database: PostgresServer | None, paths: Paths, grace: float = KEYS_GRACE) -> Keys:
    """The keys in the database, or in the user's file; `grace` is that of `DatabaseKeys`."""
    if database is not None:
        return shared.keys_in(database, grace)
    return KeyStore(paths.keys_file)


def server_keys(config: Config, database: PostgresServer | None, paths: Paths) -> Keys | None:
    """The keys that the server checks, None if it needs none."""
    if config.server.auth_mode is not AuthMode.JSON:
        return None
    return key_store(database, paths, config.server.keys_grace)


def unchecked_keys(config: Config, paths: Paths) -> list[str]:
    """A warning if there are keys, but the server does not ask for them."""
    if config.server.auth_mode is AuthMode.JSON or not paths.keys_file.exists():
        return []
    try:
        has_keys = bool(KeyStore(paths.keys_file).keys())
    except KeyStoreError:  # a file that can't be read may hold some
        has_keys = True
    warning = (
        "The API keys are not checked, so whoever reaches the server can use it. "
        "Start it with --auth-mode json to ask for keys."
    )
    return [warning] if has_keys else []


def usage_store(database: PostgresServer | None, paths: Paths) -> UsageStore | None:
    """The usage in the database or in the user's file, None if nothing was used yet."""
    if database is not None:
        return UsageStore(shared.usage_in(database))
    path = paths.usage_file
    return UsageStore(path) if path.exists() else None


def _password(place: str, env: Mapping[str, str]) -> str:
    """The password in a variable (`env:NAME`), the keyring or a file; "" without a place.

    Raises ConfigError if it is not there.
    """
    if not place:  # the database asks for none
        return ""
    if place.startswith(ENVIRONMENT):
        place = place.removeprefix(ENVIRONMENT)
        password = env.get(place, "")
    else:
        secrets = Secrets(Paths.from_env(env).credentials_file, os.environ)
        password = secrets.read(PASSWORD_NAME, place)
    if not password:
        raise ConfigError(
            f"The password of server.database is missing ({place}); "
            "`shepherd database password` stores it."
        )
    return password


PAGE = 500
"""Rows of one transaction."""


class Table(Struct, frozen=True):
    """A table with the columns of its primary key.

    The same migrations make it in both databases, so its columns have one order.
    """

    name: str
    key: str

    def read(self, rows: Rows, offset: int) -> list[Sequence[Any]]:
        """A page of the rows, in the order of their keys."""
        statement = f"SELECT * FROM {self.name} ORDER BY {self.key} LIMIT ? OFFSET ?"
        return rows.execute(statement, (PAGE, offset)).fetchall()

    def add(self, rows: Rows, page: Sequence[Sequence[Any]]) -> None:
        """Add rows whose keys are new; a page is never empty."""
        places = ", ".join("?" * len(page[0]))
        statement = f"INSERT INTO {self.name} VALUES ({places}) ON CONFLICT DO NOTHING"
        rows.executemany(statement, page)


USAGE = Table("usage", "day, key, model")
LAST_USED = Table("last_used", "key")
LIMITS = Table("limits", "key")
RESPONSES = Table("responses", "id")
ITEMS = Table("items", "response, position")


def copy_state(paths: Paths, server: PostgresServer) -> Iterator[str]:
    """Copy all; yields a sentence for each part. What is in the database already stays.

    Raises ShepherdError; the copy can then be made again.
    """
    keys = KeyStore(paths.keys_file).keys()
    existing = shared.keys_in(server).insert(keys)
    yield f"Keys: {len(keys) - len(existing)} copied."
    if existing:
        yield f"These keys are in the database already and stay as they are: {', '.join(existing)}."
    if paths.usage_file.exists():
        yield f"Usage: {_copy_usage(paths.usage_file, server)} rows."
    if paths.responses_file.exists():
        source, target = open_responses(paths.responses_file), responses_in(server)
        copy_table(source, target, ITEMS)  # first, so that no response lacks items meanwhile
        yield f"Stored responses: {copy_table(source, target, RESPONSES)}."
        source.close()


def copy_sessions(paths: Paths, server: PostgresServer) -> Iterator[str]:
    """Copy all saved sessions; yields a sentence for each problem, and one with their number.

    An incomplete last line, and sessions that are in the database already, are left out. Raises
    ShepherdError.
    """
    source, target = SessionFiles(paths.sessions), SessionDatabase(server)
    number = 0
    for session_id in source.ids():
        try:
            data = source.read(session_id)
            saved = records.parse_session(source.name(session_id), data)
        except SessionError as error:
            yield f"{error}. It is not copied."
            continue
        # an incomplete last line is cut off; a complete one may lack its line break
        lines = data[: saved.sound_bytes] + (b"" if saved.complete else b"\n")
        number += target.add(session_id, lines, source.modified(session_id))
    yield f"Sessions: {number} copied."


def _copy_usage(path: Path, server: PostgresServer) -> int:
    """Copy what keys used, and what counts against their limits; returns the rows of usage."""
    source, target = open_usage(path), shared.usage_in(server)
    number = copy_table(source, target, USAGE)
    copy_table(source, target, LAST_USED)
    source.close()
    counted = shared.open_limits(path)
    copy_table(counted, shared.limits_in(server), LIMITS)
    counted.close()
    return number


def copy_table(source: Database, target: Database, table: Table) -> int:
    """Copy a table page by page; returns the number of its rows.

    Raises the errors of the stores. After an error it can be called again.
    """
    offset = 0
    while page := source.run(partial(table.read, offset=offset), write=False):
        target.run(partial(table.add, page=page))
        offset += len(page)
    return offset
