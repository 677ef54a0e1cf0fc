"""`shepherd acp`: an agent for editors."""

from typing import cast

import typer

from shepherd.cli.frontend import start_frontend
from shepherd.cli.request import PROVIDER, FrontendChoice, overrides_of
from shepherd.config.provider_book import Ephemeral


def acp(context: typer.Context) -> None:
    """Work in an editor through the Agent Client Protocol on stdin and stdout.

    An editor starts this command; docs/editors.md tells how. Options for the model come before it.
    """
    provider = cast("Ephemeral | None", context.meta.get(PROVIDER))
    raise typer.Exit(
        start_frontend(FrontendChoice(overrides_of(context), provider=provider, acp=True))
    )
