"""`shepherd usage`: what was used with the server's keys."""

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from shepherd.cli.request import loaded_config
from shepherd.config.paths import Paths


def usage(
    context: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=36_500, help="How many days, with today.")] = 30,
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Requests and tokens of the server's keys, per day (UTC) and model."""
    from shepherd.cli.serve.database import configured_database, usage_store

    database = configured_database(loaded_config(context), os.environ)
    store = usage_store(database, Paths.from_env(os.environ), days)
    rows = [] if store is None else [asdict(row) for row in store.read(days, key).result()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        sys.stderr.write("Nothing was used yet; `shepherd --server --auth-mode json` counts.\n")
        return
    columns = list(rows[0])
    table = [columns, *([str(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(columns))]
    for line in table:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)))
