"""`shepherd doctor`: tests the installation, and advises how to fix problems."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from shepherd.cli.terminal.sanitize import sanitize

if TYPE_CHECKING:
    from shepherd.cli.commands.checks import Check

_WIDTH = 12


def doctor(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Test what works here, and advise what to install or change.

    Ends with 1 if something is broken that Shepherd needs. Nothing goes over the network, except
    one request to each server of a provider that has several, to each RPC worker, and to the
    database.
    """
    from shepherd.cli.commands.checks import State, check_all  # imports all checked parts

    overrides = cast(Mapping[str, object], context.obj)
    checks = check_all(Path.cwd(), os.environ, overrides)
    broken = [check.name for check in checks if check.state is State.BROKEN]
    if as_json:
        result = {"ok": not broken, "checks": [check.to_json() for check in checks]}
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        for check in checks:
            typer.echo(_lines(check))
        typer.echo(f"Broken: {', '.join(broken)}." if broken else "All that Shepherd needs works.")
    raise typer.Exit(1 if broken else 0)


def _lines(check: "Check") -> str:
    """`sandbox      ok      bubblewrap`, and advice below it."""
    texts = [*sanitize(check.text).splitlines(), *(f"→ {sanitize(a)}" for a in check.advice)]
    head = f"{check.name:<{_WIDTH}} {check.state.value:<7} "
    return ("\n" + " " * len(head)).join([head + texts[0], *texts[1:]])
