"""The database of the settings, and the stores of the server: there, or in files."""

import os
from collections.abc import Mapping

from shepherd.config.choices import AuthMode
from shepherd.config.paths import Paths
from shepherd.config.secrets import ENVIRONMENT, Secrets
from shepherd.config.settings import Config
from shepherd.errors import ConfigError
from shepherd.server.access.keys import Keys
from shepherd.server.access.usage import UsageStore
from shepherd.storage.postgres import Address, PostgresDatabase, PostgresServer, check_installed
from shepherd.transcript import SessionStore
from shepherd.transcript.database import SessionDatabase

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
    for store in stores_of(database) if database is not None else ():
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
    from shepherd.server.access import shared
    from shepherd.server.openai_responses.store import responses_in

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


def key_store(database: PostgresServer | None, paths: Paths) -> Keys:
    """The keys in the database, or in the user's file."""
    if database is not None:
        from shepherd.server.access.shared import keys_in

        return keys_in(database)
    from shepherd.server.access.keys import KeyStore

    return KeyStore(paths.keys_file)


def server_keys(config: Config, database: PostgresServer | None, paths: Paths) -> Keys | None:
    """The keys that the server checks, None if it needs none."""
    return key_store(database, paths) if config.server.auth_mode is AuthMode.JSON else None


def unchecked_keys(config: Config, paths: Paths) -> list[str]:
    """A warning if there are keys, but the server does not ask for them."""
    if config.server.auth_mode is AuthMode.JSON or not paths.keys_file.exists():
        return []
    from shepherd.server.access.keys import KeyStore, KeyStoreError

    try:
        has_keys = bool(KeyStore(paths.keys_file).keys())
    except KeyStoreError:
        has_keys = True
    if not has_keys:
        return []
    warning = (
        "The API keys are not checked, so whoever reaches the server can use it. "
        "Start it with --auth-mode json to ask for keys."
    )
    return [warning]


def usage_store(database: PostgresServer | None, paths: Paths, days: int) -> UsageStore | None:
    """The usage in the database or in the user's file, None if nothing was used yet."""
    if database is not None:
        from shepherd.server.access.shared import usage_in

        return UsageStore(usage_in(database), days)
    path = paths.usage_file
    return UsageStore(path, days) if path.exists() else None


def _password(place: str, env: Mapping[str, str]) -> str:
    if not place:
        return ""
    if place.startswith(ENVIRONMENT):
        name = place.removeprefix(ENVIRONMENT)
        password = env.get(name, "")
    else:
        secrets = Secrets(Paths.from_env(env).credentials_file, os.environ)
        name, password = place, secrets.read(PASSWORD_NAME, place)
    if not password:
        raise ConfigError(
            f"The password of server.database is missing ({name}); "
            "`shepherd database password` stores it."
        )
    return password
