"""`shepherd deploy`: serves with many replicas."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from shepherd.cli.commands.arguments import with_option_groups
from shepherd.cli.request import PROVIDER
from shepherd.config.choices import AuthMode
from shepherd.errors import UsageError

deploy = typer.Typer(name="deploy", help="Serve with many replicas.", no_args_is_help=True)

_REPLICAS, _ADDRESS, _ROUTING = "Replicas", "Address", "Routing"


@deploy.callback()
def _group() -> None:
    """A group, so that its one command has a name."""


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """The options for the replicas."""

    replicas: Annotated[
        str,
        typer.Option(metavar="N[..N]", help="Their number, or a range.", rich_help_panel=_REPLICAS),
    ] = "1"
    cpus: Annotated[
        float | None, typer.Option(help="CPU cores for each.", rich_help_panel=_REPLICAS)
    ] = None
    gpus: Annotated[
        float | None, typer.Option(help="GPUs for each.", rich_help_panel=_REPLICAS)
    ] = None
    queue: Annotated[
        float | None,
        typer.Option(help="Requests for each that scaling aims at.", rich_help_panel=_REPLICAS),
    ] = None
    up_seconds: Annotated[
        float | None,
        typer.Option(help="Time of more load before one is added.", rich_help_panel=_REPLICAS),
    ] = None
    down_seconds: Annotated[
        float | None,
        typer.Option(help="Time of less load before one is removed.", rich_help_panel=_REPLICAS),
    ] = None
    max_requests: Annotated[
        int | None,
        typer.Option(help="Requests of each at a time; others wait.", rich_help_panel=_REPLICAS),
    ] = None
    max_waiting: Annotated[
        int | None, typer.Option(help="Requests that may wait.", rich_help_panel=_REPLICAS)
    ] = None
    drain_seconds: Annotated[
        float | None,
        typer.Option(help="Time for running requests at the end.", rich_help_panel=_REPLICAS),
    ] = None
    health_seconds: Annotated[
        float | None,
        typer.Option(help="Interval of health checks.", rich_help_panel=_REPLICAS),
    ] = None
    busy_factor: Annotated[
        float | None,
        typer.Option(
            help="How many times busier than others the replica with the cache may be.",
            rich_help_panel=_ROUTING,
        ),
    ] = None
    busy_slack: Annotated[
        float | None,
        typer.Option(help="Requests that it may have in addition.", rich_help_panel=_ROUTING),
    ] = None
    routers: Annotated[
        int | None, typer.Option(help="Processes that route.", rich_help_panel=_ROUTING)
    ] = None


@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """The options for the address and for the cluster."""

    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", rich_help_panel=_ADDRESS)
    ] = None
    port: Annotated[
        int | None, typer.Option(help="Port; 0 = any free one.", rich_help_panel=_ADDRESS)
    ] = None
    auth_mode: Annotated[
        AuthMode | None,
        typer.Option(help="none, or json: keys of `shepherd apikey`.", rich_help_panel=_ADDRESS),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Insist on listening beyond this machine without authentication.",
            rich_help_panel=_ADDRESS,
        ),
    ] = False
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Deploy in this running Ray cluster and end; auto = the one here.",
            rich_help_panel=_ADDRESS,
        ),
    ] = ""
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Start Ray's dashboard, too.", rich_help_panel=_ADDRESS),
    ] = False


@deploy.command("ray")
@with_option_groups
def ray(context: typer.Context, replicas: ReplicaOptions, address: AddressOptions) -> None:
    """Serve HTTP with several replicas, on Ray Serve; docs/ray.md tells how.

    Options for the model and settings come before `deploy`. Needs the extra `ray` of the package.
    """
    from shepherd.cli.deploy.arguments import read_arguments
    from shepherd.cli.deploy.replica import read_settings
    from shepherd.cli.deploy.run import Deployment
    from shepherd.cli.deploy.run import deploy as run

    if context.meta.get(PROVIDER) is not None:
        raise UsageError("Replicas know saved providers only; run `shepherd provider add` first.")
    arguments = read_arguments(_values(context, replicas, address))
    config = read_settings(arguments)
    deployment = Deployment(arguments, config, address.address, address.dashboard)
    raise typer.Exit(run(deployment))


def _values(
    context: typer.Context, replicas: ReplicaOptions, address: AddressOptions
) -> dict[str, Any]:
    settings = dict(cast(Mapping[str, object], context.obj))
    flags = {
        "server.host": address.host,
        "server.port": address.port,
        "server.auth_mode": address.auth_mode,
    }
    settings |= {key: value for key, value in flags.items() if value is not None}
    values: dict[str, Any] = {
        name: value for name, value in vars(replicas).items() if value is not None
    }
    return {
        **values,
        "insecure": address.insecure,
        "settings": {key: str(v) if isinstance(v, AuthMode) else v for key, v in settings.items()},
        "directory": str(Path.cwd()),
    }
