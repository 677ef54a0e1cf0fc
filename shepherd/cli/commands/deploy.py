"""`shepherd deploy`: serves with many replicas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from msgspec import Struct

from shepherd.cli.commands.arguments import FieldOption, FieldOptions, with_option_groups
from shepherd.cli.deploy.arguments import DeployArguments, read_arguments
from shepherd.cli.option_groups import ADDRESS
from shepherd.cli.request import PROVIDER, overrides_of
from shepherd.config.section import AuthMode, described_fields
from shepherd.config.settings import find_field
from shepherd.errors import UsageError

deploy = typer.Typer(name="deploy", help="Serve with many replicas.", no_args_is_help=True)

_ARGUMENTS = described_fields(DeployArguments)


@deploy.callback()
def _group() -> None:
    """A group, so that its one command has a name."""


class ReplicaOptions(Struct, frozen=True, kw_only=True):
    """The options for the replicas."""

    panel: ClassVar = "Replicas"

    arguments: Annotated[
        Mapping[str, object],
        FieldOptions(
            _ARGUMENTS.get,
            FieldOption("replicas", metavar="N[..N]"),
            *("cpus", "gpus", "queue", "up_seconds", "down_seconds", "max_requests"),
            *("max_waiting", "drain_seconds", "health_seconds"),
        ),
    ]


class RoutingOptions(Struct, frozen=True, kw_only=True):
    """The options for the choice of a replica."""

    panel: ClassVar = "Routing"

    arguments: Annotated[
        Mapping[str, object], FieldOptions(_ARGUMENTS.get, "busy_factor", "busy_slack", "routers")
    ]


class AddressOptions(Struct, frozen=True, kw_only=True):
    """The options for the address and for the cluster."""

    panel: ClassVar = "Address"

    settings: Annotated[Mapping[str, object], FieldOptions(find_field, *ADDRESS)]
    insecure: bool = False
    """Insist on listening beyond this machine without authentication."""
    address: Annotated[str, typer.Option(metavar="ADDRESS")] = ""
    """Deploy in this running Ray cluster and end; auto = the one here."""
    dashboard: bool = False
    """Start Ray's dashboard, too."""


@deploy.command("ray")
@with_option_groups
def ray(
    context: typer.Context,
    replicas: ReplicaOptions,
    routing: RoutingOptions,
    address: AddressOptions,
) -> None:
    """Serve HTTP with several replicas, on Ray Serve; docs/ray.md tells how.

    Options for the model and settings come before `deploy`. Needs the extra `ray` of the package.
    """
    from shepherd.cli.deploy.application import deploy as run
    from shepherd.cli.deploy.replica import read_settings

    if context.meta.get(PROVIDER) is not None:
        raise UsageError("Replicas know saved providers only; run `shepherd provider add` first.")
    settings = {**overrides_of(context), **address.settings}
    arguments = read_arguments(
        {
            **replicas.arguments,
            **routing.arguments,
            "insecure": address.insecure,
            # plain texts, because replicas get the arguments as JSON
            "settings": {
                key: str(value) if isinstance(value, AuthMode) else value
                for key, value in settings.items()
            },
            "directory": str(Path.cwd()),
        }
    )
    config = read_settings(arguments)
    raise typer.Exit(run(arguments, config, address.address, dashboard=address.dashboard))
