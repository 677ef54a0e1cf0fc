"""The options of `shepherd mcp`."""

import typer

from shepherd.cli.commands.mcp import manage
from shepherd.cli.commands.mcp.serve import serve

mcp = typer.Typer(
    name="mcp",
    help="Servers of the Model Context Protocol, and Shepherd as one.",
    no_args_is_help=True,
)
for _name, _command in manage.COMMANDS.items():
    mcp.command(_name)(_command)
mcp.command("serve")(serve)
