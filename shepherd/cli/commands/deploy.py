"""`shepherd deploy`: serves with many replicas."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from shepherd.cli.commands.arguments import FieldOption, FieldOptions, with_option_groups
from shepherd.cli.deploy.arguments import DeployArguments, read_arguments
from shepherd.cli.option_groups import AUTH_MODES
from shepherd.cli.request import PROVIDER
from shepherd.config.choices import AuthMode
from shepherd.config.settings import find_field
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
    arguments: Annotated[
        Mapping[str, object],
        FieldOptions(
            DeployArguments.model_fields.get,
            _REPLICAS,
            (
                FieldOption("cpus", "CPU cores for each."),
                FieldOption("gpus", "GPUs for each."),
                FieldOption("queue", "Requests for each that scaling aims at."),
                FieldOption("up_seconds", "Time of more load before one is added."),
                FieldOption("down_seconds", "Time of less load before one is removed."),
                FieldOption("max_requests", "Requests of each at a time; others wait."),
                FieldOption("max_waiting", "Requests that may wait."),
                FieldOption("drain_seconds", "Time for running requests at the end."),
                FieldOption("health_seconds", "Interval of health checks."),
            ),
        ),
    ]
    routing: Annotated[
        Mapping[str, object],
        FieldOptions(
            DeployArguments.model_fields.get,
            _ROUTING,
            (
                FieldOption(
                    "busy_factor",
                    "How many times busier than others the replica with the cache may be.",
                ),
                FieldOption("busy_slack", "Requests that it may have in addition."),
                FieldOption("routers", "Processes that route."),
            ),
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """The options for the address and for the cluster."""

    settings: Annotated[
        Mapping[str, object],
        FieldOptions(
            find_field,
            _ADDRESS,
            (
                FieldOption("server.host"),
                FieldOption("server.port"),
                FieldOption("server.auth_mode", AUTH_MODES),
            ),
        ),
    ]
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
    from shepherd.cli.deploy.application import Deployment
    from shepherd.cli.deploy.application import deploy as run
    from shepherd.cli.deploy.replica import read_settings

    if context.meta.get(PROVIDER) is not None:
        raise UsageError("Replicas know saved providers only; run `shepherd provider add` first.")
    arguments = read_arguments(_values(context, replicas, address))
    config = read_settings(arguments)
    deployment = Deployment(arguments, config, address.address, address.dashboard)
    raise typer.Exit(run(deployment))


def _values(
    context: typer.Context, replicas: ReplicaOptions, address: AddressOptions
) -> dict[str, Any]:
    settings = {**cast(Mapping[str, object], context.obj), **address.settings}
    return {
        "replicas": replicas.replicas,
        **replicas.arguments,
        **replicas.routing,
        "insecure": address.insecure,
        "settings": {key: str(v) if isinstance(v, AuthMode) else v for key, v in settings.items()},
        "directory": str(Path.cwd()),
    }
