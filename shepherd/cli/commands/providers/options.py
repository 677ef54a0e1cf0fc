"""`shepherd provider`: manages providers, whose servers answer in place of a local model.

Keys are read and written in threads, because a keyring may wait for its user's password.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial, wraps
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, cast

import typer
from msgspec import Struct
from typer.main import get_command

from shepherd.cli.commands import arguments
from shepherd.cli.commands.providers import view
from shepherd.cli.commands.providers.view import Console
from shepherd.cli.request import load_settings, overrides_of
from shepherd.cli.terminal.secrets import STDIN
from shepherd.config import paths, provider_book, secrets, section, settings
from shepherd.config.load import load_config
from shepherd.config.provider import LOCAL, PROVIDER_TYPES, Provider, make_provider, vendor_of
from shepherd.errors import ConfigError, UsageError
from shepherd.validation import did_you_mean

SETTING = "model.provider"
KEY = "api_key"
_PLACES = ("", "none", "file", "keyring")
"""Places of a key that are no variables; any other text is a key itself."""

_HEADER = "headers."
_NUMBERS: Mapping[object, type[int] | type[float]] = {int: int, float: float}

Action: TypeAlias = Callable[[Console], Awaitable[int]]
"""A command with its options; calling it runs the command and returns the exit code."""

provider = typer.Typer(
    name="provider", help="APIs and servers whose models can answer.", no_args_is_help=True
)
"""Its commands return an `Action`: the shell runs it at once, the prompt on its own loop."""

Name = Annotated[str, typer.Argument(help="The provider's name.")]
_FIELDS = section.described_fields(Provider)


class ProviderOptions(Struct, frozen=True, kw_only=True):
    """The options of `provider add` for all providers."""

    type: Annotated[str, typer.Option(help=f"One of {', '.join(PROVIDER_TYPES)}.")]
    base_url: Annotated[list[str] | None, typer.Option(metavar="URL")] = None
    """Address; by default that of the type. Repeat it for several servers."""
    api_key: str | None = None
    """The key, kept in a private file; - reads it hidden."""
    api_key_env: Annotated[str, typer.Option(metavar="VARIABLE")] = ""
    """The variable that holds the key."""
    keyring: arguments.Keyring = False
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE")] = None
    """Header of each request; may be repeated."""
    use_it: Annotated[bool, typer.Option("--use")] = False
    """Let it answer from now on, too."""
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


def _in_console(command: Callable[..., Awaitable[int]]) -> Callable[..., Action]:
    """A command without its first parameter, the console, which its `Action` takes."""

    @wraps(command)
    def prepared(**values: Any) -> Action:
        return partial(command, **values)

    _console, *parameters = inspect.signature(command).parameters.values()
    return arguments.with_parameters(prepared, parameters)


@provider.command("add")
@arguments.with_option_groups
@_in_console
async def add(
    console: Console,
    name: Name,
    options: ProviderOptions,
    upstreams: UpstreamOptions,
    tensorrt: TensorrtOptions,
) -> int:
    """Add a provider; its key is stored apart from its settings."""
    book, keyring = console.book, options.keyring
    if options.api_key_env and (options.api_key is not None or keyring):
        raise UsageError("--api-key-env names where the key is; --api-key and --keyring store one.")
    values = {**options.values(), **upstreams.settings, **tensorrt.settings}
    if name in [provider.name for provider in book.store.all()]:
        raise UsageError(f"There is a provider {name} already; `provider set` changes it.")
    place = "keyring" if keyring else "file"
    added = _checked(name, values)
    secret = await _key_to_store(console, added, options.api_key, must_have_one=keyring)
    if secret:
        await asyncio.to_thread(book.secrets.store, name, secret, place)
        added = _checked(name, {**values, KEY: place})
    book.store.save(added)
    await _tell_with_key_advice(console, f"Provider {name} is added.", added)
    await console.after_change(name)
    if options.use_it:
        return await _use(console, name)
    begin = console.command
    console.tell(f"`{begin} test {name}` tries it, `{begin} use {name}` chooses it.")
    return 0


@provider.command("list")
@_in_console
async def list_providers(console: Console, context: typer.Context) -> int:
    """List all providers in order; a star marks the one that answers."""
    book, config = console.book, load_settings(Path.cwd(), os.environ, overrides_of(context))
    providers = book.all()
    current = config.model.provider.partition("/")[0]
    width = max((len(provider.name) for provider in providers), default=0)
    for provider in providers:
        star = "*" if provider.name == current else " "
        summary = await asyncio.to_thread(view.summary, provider, book)
        console.show(f"{star} {provider.name:<{width}}  {summary}")
    for warning in book.warnings():
        console.tell(warning)
    if not providers:
        console.tell(f"No providers yet; add one: `{view.HOW_TO_ADD}`.")
    if not current:
        console.tell(f"{config.model.name} answers, in this process.")
    return 0


@provider.command("show")
@_in_console
async def show(console: Console, name: Name) -> int:
    """Show the stored properties of a provider without a request to it."""
    provider = console.book.pick(name)
    for key, text in await asyncio.to_thread(view.details, provider, console.book):
        console.show(f"{key:<13} {text}")
    return 0


@provider.command("set", cls=arguments.ValueCommand)
@_in_console
async def set_(
    console: Console,
    name: Name,
    key: Annotated[str, typer.Argument(help="model, base-url, api-key, context-size …")],
    value: Annotated[
        str | None,
        typer.Argument(help="The value; an api-key is asked for without one, or with -."),
    ] = None,
) -> int:
    """Change a provider: `set work api-key`, `set work headers.X-Team blue`."""
    book = console.book
    before = book.stored(name)
    if key.replace("-", "_") == KEY and value in (None, STDIN):
        secret = await _ask_key(console, f"Key of {name}: ")
        after = await asyncio.to_thread(_with_key, before, secret, book)
    elif value is None:
        raise UsageError(f"Write a value behind {key}: `provider set {name} {key} VALUE`.")
    else:
        after = await asyncio.to_thread(_changed, before, key, value, book)
    if before.api_key != after.api_key:  # the old key is elsewhere, and not used any more
        await asyncio.to_thread(book.secrets.forget, before)
    book.store.save(after)
    console.tell(f"{name}: {key.replace('_', '-')} is changed.")
    await console.after_change(name, key.replace("-", "_"))
    return 0


@provider.command("use")
@_in_console
async def use(
    console: Console,
    name: Annotated[str, typer.Argument(help=f"NAME, NAME/MODEL, or {LOCAL} for none.")],
) -> int:
    """Make a provider answer from now on."""
    return await _use(console, name)


async def _use(console: Console, selector: str) -> int:
    """Make a provider answer from now on, or the local model with LOCAL."""
    from shepherd.config.edit import set_value, unset_value  # imports tomlkit

    path = paths.Paths.from_env(os.environ).user_file
    chosen = None if selector == LOCAL else console.book.pick(selector)
    if not await console.switch(selector):  # what can't be opened is not chosen for later
        return 1
    if chosen is None:
        unset_value(path, SETTING)
        console.tell("The local model answers.")
        return 0
    set_value(path, SETTING, selector)
    await _tell_with_key_advice(console, f"{chosen.label} answers from now on.", chosen)
    return 0


@provider.command("test")
@_in_console
async def test(
    console: Console, name: Annotated[str, typer.Argument(help="NAME or NAME/MODEL.")]
) -> int:
    """Connect, list the models, and show the context size with its source."""
    return await view.run_test(console.book.pick(name), console.book, console.show)


@provider.command("remove")
@_in_console
async def remove(console: Console, name: Name) -> int:
    """Delete a provider and its stored key."""
    book = console.book
    removed = book.stored(name)
    await console.before_removing(name)
    await asyncio.to_thread(book.secrets.forget, removed)
    book.store.remove(name)
    console.tell(f"Provider {name} is removed.")
    from shepherd.config.edit import unset_value  # imports tomlkit

    config = load_config(Path.cwd(), os.environ)
    path = paths.Paths.from_env(os.environ).user_file
    source = config.source(SETTING)
    if config.model.provider.partition("/")[0] == name and source.path == path:
        unset_value(path, SETTING)
        console.tell("The local model answers from now on.")
    await console.after_change(name)
    return 0


async def _ask_key(console: Console, question: str, *, needed: bool = True) -> str:
    """Read a key without an echo; raises UsageError for an empty one if `needed`."""
    key = (await console.read(question)).strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


async def _key_to_store(
    console: Console, added: Provider, text: str | None, *, must_have_one: bool
) -> str:
    """The key to store; "" if there is none or it is stored elsewhere.

    `text` is the option's value: a key, "-" to ask for it, or None.
    """
    question = f"Key of {added.name}: "
    if text == STDIN or (text is None and must_have_one):
        return await _ask_key(console, question)
    if text is not None:
        return text
    may_need_one = vendor_of(added) is not None and not added.api_key
    if not may_need_one or not console.can_ask:
        return ""
    of_environment = await asyncio.to_thread(console.book.key, added)
    if of_environment.value:
        return ""
    return await _ask_key(console, f"{question}(empty = none) ", needed=False)


async def _tell_with_key_advice(console: Console, sentence: str, provider: Provider) -> None:
    """Report what was done, and advise if the provider still needs a key."""
    advice = await asyncio.to_thread(view.key_advice, provider, console.book)
    console.tell(f"{sentence} {advice}".rstrip())


def _changed(
    provider: Provider, key: str, value: str, book: provider_book.ProviderBook
) -> Provider:
    """The provider with `key` set to the text `value`; an API key in `value` is stored.

    Raises UsageError.
    """
    if not key.startswith(_HEADER):  # the name of a header keeps its hyphens
        key = key.replace("-", "_")
    is_place = value in _PLACES or value.startswith(secrets.ENVIRONMENT)
    if key == KEY and not is_place:
        return _with_key(provider, value, book)
    values = provider.model_dump(exclude_defaults=True)
    if key.startswith(_HEADER):
        headers = {**provider.headers, key.removeprefix(_HEADER): value}
        # an empty value removes a header
        values["headers"] = {name: text for name, text in headers.items() if text}
    else:
        values[key] = _parsed(key, value)
    return _checked(provider.name, values)


def _with_key(provider: Provider, secret: str, book: provider_book.ProviderBook) -> Provider:
    """The provider with the key `secret`, which is stored where the old one is, else in a file."""
    place = provider.api_key if provider.api_key == "keyring" else "file"
    book.secrets.store(provider.name, secret, place)
    values = provider.model_dump(exclude_defaults=True)
    return _checked(provider.name, {**values, KEY: place})


def _checked(name: str, values: Mapping[str, object]) -> Provider:
    """The provider; raises UsageError, because invalid values were typed."""
    try:
        return make_provider(name, values)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _parsed(key: str, value: str) -> object:
    """The value of a setting; a text of another type stays, and validation reports it."""
    field = Provider.model_fields.get(key)
    if field is None or key in ("name", "headers"):  # a header is set by `headers.NAME`
        names = [name.replace("_", "-") for name in Provider.model_fields if name != "name"]
        suggestion = did_you_mean(key.replace("_", "-"), names) or f"; there are {', '.join(names)}"
        raise UsageError(f"a provider has no setting {key}{suggestion}")
    kind = settings.bare_type(field)
    if kind == list[str]:
        return value.replace(",", " ").split()
    if kind is bool:
        return settings.parse_bool(value)
    try:
        return _NUMBERS[kind](value.replace("_", ""))  # `32_000`
    except (KeyError, ValueError):
        return value


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
