"""`shepherd provider`: manages providers, whose servers answer in place of a local model."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Annotated, ClassVar, cast

import typer
from msgspec import Struct
from typer.main import get_command

from shepherd.cli.commands import arguments
from shepherd.cli.commands.providers import actions
from shepherd.cli.commands.providers.actions import Action, Console
from shepherd.cli.request import overrides_of
from shepherd.config import provider_book, secrets, section
from shepherd.config.provider import LOCAL, PROVIDER_TYPES, Provider
from shepherd.errors import UsageError

provider = typer.Typer(
    name="provider", help="APIs and servers whose models can answer.", no_args_is_help=True
)
"""Its commands parse options and return an `Action`."""

Name = Annotated[str, typer.Argument(help="The provider's name.")]
_FIELDS = section.described_fields(Provider)


class ProviderOptions(Struct, frozen=True, kw_only=True):
    """The options of `provider add` for all providers."""

    type: Annotated[str, typer.Option(help=f"One of {', '.join(PROVIDER_TYPES)}.")]
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address; by default that of the type. Repeat it for several servers.",
        ),
    ] = None
    api_key: Annotated[
        str | None, typer.Option(help="The key, kept in a private file; - reads it hidden.")
    ] = None
    api_key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="The variable that holds the key.")
    ] = ""
    keyring: arguments.Keyring = False
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Header of each request; may be repeated."),
    ] = None
    use_it: Annotated[bool, typer.Option("--use", help="Let it answer from now on, too.")] = False
    settings: Annotated[
        Mapping[str, object],
        arguments.FieldOptions(
            _FIELDS.get,
            arguments.FieldOption("model", names="--model -m"),
            *("context_size", "output_limit", "priority", "dialect"),
            *("requests_per_minute", "tokens_per_minute", "effort"),
            arguments.FieldOption("ask", names="--ask/--no-ask"),
        ),
    ]

    def values(self) -> dict[str, object]:
        """The provider's settings by their names in its file; raises UsageError."""
        urls = self.base_url or []
        return {
            **self.settings,
            "type": self.type,
            "base_url": urls[0] if len(urls) == 1 else "",
            "base_urls": urls if len(urls) > 1 else [],
            "api_key": f"{secrets.ENVIRONMENT}{self.api_key_env}" if self.api_key_env else "",
            "headers": {k: v.strip() for k, v in arguments.pairs("--header", self.header).items()},
        }


class UpstreamOptions(Struct, frozen=True, kw_only=True):
    """The options of `provider add` for several servers."""

    panel: ClassVar = "Several servers"

    settings: Annotated[
        Mapping[str, object],
        arguments.FieldOptions(
            _FIELDS.get, "check_seconds", "first_byte_seconds", "affinity_factor", "affinity_slack"
        ),
    ]


class TensorrtOptions(Struct, frozen=True, kw_only=True):
    """The options of `provider add` for a model in this process."""

    panel: ClassVar = "TensorRT-LLM in this process"

    settings: Annotated[
        Mapping[str, object],
        arguments.FieldOptions(
            _FIELDS.get,
            *("tokenizer", "tensor_parallel", "pipeline_parallel", "gpu_memory"),
            *("max_batch_size", "guided_decoding"),
            arguments.FieldOption("trust_remote_code", names="--trust-remote-code"),
        ),
    ]


@provider.command("add")
@arguments.with_option_groups
def add(
    name: Name, options: ProviderOptions, upstreams: UpstreamOptions, tensorrt: TensorrtOptions
) -> Action:
    """Add a provider; its key is stored apart from its settings."""
    if options.api_key_env and (options.api_key is not None or options.keyring):
        raise UsageError("--api-key-env names where the key is; --api-key and --keyring store one.")
    return partial(
        actions.add_provider,
        name=name,
        values={**options.values(), **upstreams.settings, **tensorrt.settings},
        key=options.api_key,
        keyring=options.keyring,
        use=options.use_it,
    )


@provider.command("list")
def list_providers(context: typer.Context) -> Action:
    """List all providers in order; a star marks the one that answers."""
    return partial(actions.list_providers, overrides=overrides_of(context))


@provider.command("show")
def show(name: Name) -> Action:
    """Show the stored properties of a provider without a request to it."""
    return partial(actions.show_provider, name=name)


@provider.command("set", cls=arguments.ValueCommand)
def set_(
    name: Name,
    key: Annotated[str, typer.Argument(help="model, base-url, api-key, context-size …")],
    value: Annotated[
        str | None,
        typer.Argument(help="The value; an api-key is asked for without one, or with -."),
    ] = None,
) -> Action:
    """Change a provider: `set work api-key`, `set work headers.X-Team blue`."""
    return partial(actions.set_provider, name=name, key=key, value=value)


@provider.command("use")
def use(
    name: Annotated[str, typer.Argument(help=f"NAME, NAME/MODEL, or {LOCAL} for none.")],
) -> Action:
    """Make a provider answer from now on."""
    return partial(actions.use_provider, selector=name)


@provider.command("test")
def test(name: Annotated[str, typer.Argument(help="NAME or NAME/MODEL.")]) -> Action:
    """Connect, list the models, and show the context size with its source."""
    return partial(actions.test_provider, selector=name)


@provider.command("remove")
def remove(name: Name) -> Action:
    """Delete a provider and its stored key."""
    return partial(actions.remove_provider, name=name)


def do_in_shell(action: Action) -> None:
    """Run a command's action; exits with its exit code."""

    async def run() -> int:
        return await action(Console(provider_book.ProviderBook.from_env(os.environ)))

    raise typer.Exit(asyncio.run(run()))


def read_command(words: Sequence[str], program: str) -> Action | str:
    """The action of a command's words, or the help that they request.

    Raises UsageError.
    """
    printed = StringIO()  # the help, which Typer prints
    try:
        with redirect_stdout(printed):
            result = get_command(provider).main(list(words), program, standalone_mode=False)
    except typer.TyperException as error:
        raise UsageError(error.format_message()) from error
    return cast(Action, result) if callable(result) else printed.getvalue()
