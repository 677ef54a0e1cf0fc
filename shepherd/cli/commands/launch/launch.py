"""`shepherd launch`: starts another coding agent on the model of this machine."""

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from msgspec import Struct, toml

from shepherd import errors
from shepherd.cli.commands.output import note, show_table, warn
from shepherd.cli.request import PROVIDER, loaded_config, overrides_of
from shepherd.config.paths import Paths

_OUTPUT_SHARE = 4
_MAX_OUTPUT = 32_000


class CodingAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of agents.toml, which explains the fields."""

    title: str
    api: str
    install: str
    first_prompt: int = 0
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}


def coding_agents() -> dict[str, CodingAgent]:
    """All agents by the names of their programs."""
    text = files("shepherd.cli.commands.launch").joinpath("agents.toml").read_bytes()
    return toml.decode(text, type=dict[str, CodingAgent])


def launch(
    context: typer.Context,
    agent: Annotated[str | None, typer.Argument(help="The agent; without it: a list.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="For the agent, behind `--`.")
    ] = None,
) -> None:
    """Start another coding agent on the model of this machine.

    It uses the server of the settings if one runs, else a server of its own that ends with it.
    Options of `shepherd` before `launch` are for that one. The agent's own settings stay as they
    are.
    """
    known = coding_agents()
    if agent is None:
        rows = [(name, a.title, shutil.which(name) or a.install) for name, a in known.items()]
        show_table([("agent", "", "program, or how to install it"), *rows])
        return
    if agent not in known:
        raise errors.UsageError(f"{agent} is not one of {', '.join(known)}.")
    chosen, executable = known[agent], shutil.which(agent)
    if executable is None:
        raise errors.UsageError(f"{chosen.title} is not installed: {chosen.install}")
    if context.meta.get(PROVIDER):
        raise errors.UsageError("--backend is for one run; launch needs a provider that is kept.")
    _become(executable, chosen, arguments or [], context)


def _become(
    executable: str, agent: CodingAgent, arguments: Sequence[str], context: typer.Context
) -> None:
    """Replace this process by the agent, on a server that is up."""
    from shepherd.cli.commands.launch.server import find_endpoint  # imports an HTTP client

    config, paths = loaded_config(context), Paths.from_env(os.environ)
    directory = Path(tempfile.mkdtemp(prefix="shepherd-launch-"))
    server = find_endpoint(config, overrides_of(context), paths, directory)
    which = (
        f"a server of its own (log: {paths.launch_log})" if server.is_own else "the running server"
    )
    place = f"{agent.api} at {server.url}, {which}"
    note(f"shepherd: {agent.title} with {server.model}, {server.context:,} tokens: {place}")
    if server.context < agent.first_prompt:
        warn(
            f"its first prompt has about {agent.first_prompt:,} tokens, which is too much; use a "
            "model with more, or --context-size"
        )
    values = {
        "url": server.url,
        "key": server.key,
        "model": server.model,
        "context": server.context,
        "output": min(_MAX_OUTPUT, server.context // _OUTPUT_SHARE),
        "dir": directory,
    }
    for name, text in agent.files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(Template(text).substitute(values), "utf-8")
    for name, text in agent.env.items():
        os.environ[name] = Template(text).substitute(values)
        if not text:
            del os.environ[name]
    own = [Template(text).substitute(values) for text in agent.arguments]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program inherits that
    os.execv(executable, [executable, *own, *arguments])
