"""The options of `shepherd mcp`."""

import typer

from shepherd.cli.commands.mcp.serve import serve

mcp = typer.Typer(
    name="mcp", help="The Model Context Protocol: Shepherd as a server.", no_args_is_help=True
)
mcp.command("serve")(serve)
