"""`shepherd launch`: starts another coding agent on the model of this machine."""

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, toml

from shepherd import errors
from shepherd.cli.commands.output import note, show_table, warn
from shepherd.cli.request import PROVIDER, loaded_config, overrides_of
from shepherd.config.paths import Paths

if TYPE_CHECKING:
    from shepherd.cli.commands.launch.server import Endpoint

_OUTPUT_SHARE = 4
_MAX_OUTPUT = 32_000


class CodingAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of agents.toml, which explains the fields."""

    title: str
    api: str
    install: str
    first_prompt: int = 0
    names: Sequence[str] = ()
    arguments: Sequence[str] = ()
    env: dict[str, str] = {}
    files: dict[str, str] = {}


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
    from shepherd.cli.commands.launch import server  # imports FastAPI and an HTTP client

    config, overrides = loaded_config(context), overrides_of(context)
    paths = Paths.from_env(os.environ)
    # options that are not about the address ask for another model than the running server's
    is_special = any(not key.startswith("server.") for key in overrides)
    url, command = "" if is_special else server.running_server(config), list[str]()
    if not url:
        url, command = server.own_server(config, overrides, agent.names)
    directory = Path(tempfile.mkdtemp(prefix="shepherd-launch-"))
    keeper = server.start_keeper(directory, command, config, paths)
    endpoint = server.await_endpoint(url, keeper, directory, config, paths)
    _tell(agent, endpoint, paths.launch_log if command else None)
    values = {
        "url": endpoint.url,
        "key": endpoint.key,
        "model": endpoint.model,
        "context": endpoint.context,
        "output": min(_MAX_OUTPUT, endpoint.context // _OUTPUT_SHARE),
        "dir": directory,
    }
    for name, text in agent.files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(Template(text).substitute(values), "utf-8")
    changes = {name: Template(text).substitute(values) for name, text in agent.env.items()}
    env = {
        name: value
        for name, value in {**os.environ, **changes}.items()
        if changes.get(name, "kept")
    }
    own = [Template(text).substitute(values) for text in agent.arguments]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program inherits that
    os.execve(executable, [executable, *own, *arguments], env)


def _tell(agent: CodingAgent, endpoint: "Endpoint", log: Path | None) -> None:
    """Say in a line what was done, and what the user should know about it."""
    which = f"a server of its own (log: {log})" if log else "the running server"
    place = f"{agent.api} at {endpoint.url}, {which}"
    note(f"shepherd: {agent.title} with {endpoint.model}, {endpoint.context:,} tokens: {place}")
    if endpoint.context < agent.first_prompt:
        warn(
            f"its first prompt has about {agent.first_prompt:,} tokens, which is too much; use a "
            "model with more, or --context-size"
        )
    missing = [name for name in agent.names if endpoint.lacks(name.replace("*", "any"))]
    if missing:
        lines = ", ".join(f'"{name}" = "default"' for name in missing)
        warn(f"it asks for models that this server lacks; add to [server.aliases]: {lines}")
