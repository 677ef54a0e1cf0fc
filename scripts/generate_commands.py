"""Writes docs/reference/commands.md from the command line's own definition."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

from shepherd.cli.options import app
from shepherd.config.settings import allowed_words

PAGE = "commands.md"

_HEAD = """# Commands and options

Generated from `shepherd/cli/options.py`; do not edit. What they are for: [the command
line](../cli.md).
"""
_OMITTED = frozenset({"--help", "--install-completion", "--show-completion"})


def render() -> str:
    """The page as Markdown."""
    root = get_command(app)
    if not isinstance(root, TyperGroup):
        raise TypeError("the command line has sub-commands")
    parts = [_HEAD, *_command("shepherd", root)]
    context = typer.Context(root)
    groups = [root.get_command(context, name) for name in root.list_commands(context)]
    for group in filter(None, groups):
        if not isinstance(group, TyperGroup):
            parts += _command(f"shepherd {group.name}", group)
            continue
        for command in group.commands.values():
            parts += _command(f"shepherd {group.name} {command.name}", command)
    return "\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, TyperArgument)]
    options = [p for p in command.params if isinstance(p, TyperOption)]
    usage = " ".join([name, *(_argument(a) for a in arguments)])
    yield f"## `{usage}`\n"
    yield f"{_paragraph(command.help or '')}\n"
    rows = [_row(option) for option in options if not _OMITTED & {*option.opts}]
    if rows:
        yield from ["| option | value | meaning |", "|---|---|---|", *rows, ""]


def _argument(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _row(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f"`{option.metavar or _type_name(option)}`"
    return f"| {names} | {value} | {_paragraph(option.help or '')} |"


def _type_name(option: TyperOption) -> str:
    kind: object = option.type_descriptor.annotation
    if words := allowed_words(kind):
        return r"\|".join(filter(None, words))
    return kind.__name__.upper() if isinstance(kind, type) else "TEXT"


def _paragraph(text: str) -> str:
    return " ".join(text.split())
