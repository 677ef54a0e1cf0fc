"""`shepherd database`: the PostgreSQL database of the server."""

import getpass
import os
import sys
from typing import Annotated

import typer

from shepherd.cli.commands import arguments, output
from shepherd.cli.request import loaded_config
from shepherd.config.paths import Paths
from shepherd.config.secrets import Secrets
from shepherd.errors import UsageError

database = typer.Typer(
    name="database", help="The PostgreSQL database of `server.database`.", no_args_is_help=True
)


@database.command("migrate")
def migrate(context: typer.Context) -> None:
    """Make the tables, or bring them to the current version; servers do this, too."""
    from shepherd.cli.serve.database import required_database, stores_of

    server = required_database(loaded_config(context), os.environ)
    for store in stores_of(server):
        store.migrate()
    output.note(f"{server.address}: the tables are current.")


@database.command("copy")
def copy(
    context: typer.Context,
    *,
    sessions: Annotated[
        bool, typer.Option("--sessions", help="Saved sessions too, also those of the terminal.")
    ] = False,
) -> None:
    """Copy keys, usage and stored responses of this user's files into the database.

    What is in the database already stays. The files stay, too. Stop the server before.
    """
    from shepherd.cli.serve.database import copy_sessions, copy_state, required_database

    server = required_database(loaded_config(context), os.environ)
    paths = Paths.from_env(os.environ)
    for sentence in copy_state(paths, server):
        output.note(sentence)
    if sessions:
        for sentence in copy_sessions(paths, server):
            output.note(sentence)


@database.command("password")
def store_password(*, keyring: arguments.Keyring = False) -> None:
    """Store the password, which is read from the terminal or from stdin."""
    from shepherd.cli.serve.database import PASSWORD_NAME
    from shepherd.config.edit import set_value  # loads tomlkit

    is_terminal = sys.stdin.isatty()
    password = getpass.getpass("Password: ") if is_terminal else sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("The password is empty; nothing is stored.")
    paths, place = Paths.from_env(os.environ), "keyring" if keyring else "file"
    Secrets(paths.credentials_file, os.environ).store(PASSWORD_NAME, password, place)
    set_value(paths.user_file, "server.database_password", place)
    where = "the system's keyring" if keyring else str(paths.credentials_file)
    output.note(f"The password is in {where}.")
