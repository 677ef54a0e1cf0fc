"""`shepherd acp`: an agent for editors."""

from typing import cast

import typer

from shepherd.cli.launch import launch
from shepherd.cli.request import PROVIDER, Launch, overrides_of
from shepherd.config.provider_book import Ephemeral


def acp(context: typer.Context) -> None:
    """Work in an editor through the Agent Client Protocol on stdin and stdout.

    An editor starts this command; docs/editors.md tells how. Options for the model come before it.
    """
    provider = cast("Ephemeral | None", context.meta.get(PROVIDER))
    raise typer.Exit(launch(Launch(overrides_of(context), provider=provider, acp=True)))
