"""`shepherd apikey`: the keys that open the server."""

import os
import sys
from typing import Annotated

import typer

from shepherd.config.paths import Paths
from shepherd.server.keys import KeyStore

apikey = typer.Typer(
    name="apikey", help="API keys for `shepherd --server --auth-mode json`.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the key.")]


@apikey.command("add")
def add_key(name: Name) -> None:
    """Make a key and show it once; only its hash is stored."""
    key = _store().add(name)
    sys.stderr.write(f"Key {name}: keep it now, it can't be shown again.\n")
    typer.echo(key)


@apikey.command("list")
def list_keys() -> None:
    """Name, beginning and age of all keys."""
    keys = _store().keys()
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        typer.echo(f"{key.name:<{width}}  {key.prefix}…  {key.created}")
    if not keys:
        sys.stderr.write("No keys yet; make one with `shepherd apikey add NAME`.\n")


@apikey.command("remove")
def remove_key(name: Name) -> None:
    """Make a key invalid, for a running server too."""
    _store().remove(name)
    sys.stderr.write(f"Key {name} is no longer valid.\n")


def _store() -> KeyStore:
    return KeyStore(Paths.from_env(os.environ).keys_file)
