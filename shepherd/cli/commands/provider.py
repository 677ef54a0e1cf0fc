"""`shepherd provider`: where models answer that are not Shepherd's own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from shepherd.cli.ask_key import STDIN, read_key
from shepherd.cli.errors import UsageError
from shepherd.cli.provider_change import changed, checked
from shepherd.cli.provider_view import HOW_TO_ADD, details, key_advice, summary
from shepherd.cli.repl.clean import clean
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import LOCAL, PROVIDER_TYPES, Provider
from shepherd.config.secrets import ENVIRONMENT
from shepherd.config.settings import Config
from shepherd.config.vendors import vendor_of

SETTING = "model.provider"

provider = typer.Typer(
    name="provider", help="APIs and servers whose models can answer.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="The provider's name.")]
TENSORRT = "TensorRT-LLM in this process"


def _setting(name: str, *names: str, panel: str | None = None) -> Any:
    """The option that sets what the provider's file calls `name`."""
    text = (Provider.model_fields[name].description or "").removeprefix("As before: ")
    return typer.Option(*names, help=text[:1].upper() + text[1:], rich_help_panel=panel)


@provider.command("add")
def add(  # noqa: PLR0913 - each option is a parameter
    name: Name,
    type: Annotated[str, typer.Option(help=f"One of {', '.join(PROVIDER_TYPES)}.")],
    model: Annotated[str, typer.Option("--model", "-m", help="The model's name there.")] = "",
    base_url: Annotated[str, typer.Option(help="Address; the type's own if not given.")] = "",
    api_key: Annotated[
        str | None, typer.Option(help="The key, kept in a private file; - reads it hidden.")
    ] = None,
    api_key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="The variable that holds the key.")
    ] = "",
    keyring: Annotated[
        bool, typer.Option("--keyring", help="Keep the key in the system's keyring.")
    ] = False,
    context_size: Annotated[
        int, typer.Option(help="Tokens of context; 0 = what the server says.")
    ] = 0,
    output_limit: Annotated[
        int, typer.Option(help="Longest answer in tokens; 0 = the model's.")
    ] = 0,
    priority: Annotated[int, typer.Option(help="Place in the order, the lowest first.")] = 100,
    dialect: Annotated[
        str, typer.Option(help="OpenAI parameters: strict or extended; unset = by the server.")
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Header of each request; may be repeated."),
    ] = None,
    requests_per_minute: Annotated[int, _setting("requests_per_minute")] = 0,
    tokens_per_minute: Annotated[int, _setting("tokens_per_minute")] = 0,
    effort: Annotated[str, _setting("effort")] = "",
    ask: Annotated[bool, _setting("ask", "--ask/--no-ask")] = True,
    tokenizer: Annotated[str, _setting("tokenizer", panel=TENSORRT)] = "",
    tensor_parallel: Annotated[int, _setting("tensor_parallel", panel=TENSORRT)] = 1,
    pipeline_parallel: Annotated[int, _setting("pipeline_parallel", panel=TENSORRT)] = 1,
    gpu_memory: Annotated[float, _setting("gpu_memory", panel=TENSORRT)] = 0.9,
    max_batch_size: Annotated[int, _setting("max_batch_size", panel=TENSORRT)] = 0,
    guided_decoding: Annotated[str, _setting("guided_decoding", panel=TENSORRT)] = "",
    trust_remote_code: Annotated[
        bool, _setting("trust_remote_code", "--trust-remote-code", panel=TENSORRT)
    ] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Let it answer from now on, too.")] = False,
) -> None:
    """Add a provider; its key stays out of its settings."""
    if api_key_env and (api_key is not None or keyring):
        raise UsageError("--api-key-env names where the key is; --api-key and --keyring store one.")
    book = _book()
    if name in [p.name for p in book.store.all()]:
        raise UsageError(f"There is a provider {name} already; `provider set` changes it.")
    values: dict[str, object] = {
        "type": type,
        "model": model,
        "base_url": base_url,
        "api_key": f"{ENVIRONMENT}{api_key_env}" if api_key_env else "",
        "context_size": context_size,
        "output_limit": output_limit,
        "priority": priority,
        "dialect": dialect,
        "headers": dict(_header(text) for text in header or []),
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "effort": effort,
        "ask": ask,
        "tokenizer": tokenizer,
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "gpu_memory": gpu_memory,
        "max_batch_size": max_batch_size,
        "guided_decoding": guided_decoding,
        "trust_remote_code": trust_remote_code,
    }
    place = "keyring" if keyring else "file"
    added = checked(name, values)
    key = _given_key(added, api_key, book, stored=keyring)
    if key:
        book.secrets.store(name, key, place)
        added = checked(name, {**values, "api_key": place})
    book.store.save(added)
    _tell(f"Provider {name} is added.", key_advice(added, book))
    if use_it:
        use(name)
    else:
        _tell(f"`shepherd provider test {name}` tries it, `provider use {name}` chooses it.")


@provider.command("list")
def list_providers(context: typer.Context) -> None:
    """All providers in their order; the one that answers has a star."""
    book, config = _book(), _config(context)
    providers = book.all()
    current = config.model.provider.partition("/")[0]
    width = max((len(p.name) for p in providers), default=0)
    for one in providers:
        star = "*" if one.name == current else " "
        typer.echo(clean(f"{star} {one.name:<{width}}  {summary(one, book)}"))
    if not providers:
        _tell(f"No providers yet; add one: `{HOW_TO_ADD}`.")
    if not current:
        _tell(f"{config.model.name} answers, in this process.")


@provider.command("show")
def show(name: Name) -> None:
    """What is known of a provider without asking it."""
    book = _book()
    for key, text in details(book.store.get(name), book):
        typer.echo(clean(f"{key:<13} {text}"))


@provider.command("set")
def set_(
    name: Name,
    key: Annotated[str, typer.Argument(help="model, base-url, api-key, context-size …")],
    value: Annotated[str, typer.Argument(help="The value; as api-key, - reads it hidden.")],
) -> None:
    """Change a provider: `set work api-key -`, `set work headers.X-Team blue`."""
    book = _book()
    before = book.store.get(name)
    after = changed(before, key, value, book)
    if before.api_key != after.api_key:
        book.secrets.forget(before)
    book.store.save(after)


@provider.command("use")
def use(
    name: Annotated[str, typer.Argument(help=f"NAME, NAME/MODEL, or {LOCAL} for none.")],
) -> None:
    """Let a provider answer from now on."""
    from shepherd.config.edit import set_value, unset_value  # loads tomlkit

    path = Paths.from_env(os.environ).user_file
    if name == LOCAL:
        unset_value(path, SETTING)
        _tell("The local model answers.")
        return
    book = _book()
    chosen = book.pick(name)
    set_value(path, SETTING, name)
    _tell(f"{chosen.label} answers from now on.", key_advice(chosen, book))


@provider.command("test")
def test(name: Annotated[str, typer.Argument(help="NAME or NAME/MODEL.")]) -> None:
    """Connect, list the models, tell the context size and where it was learned."""
    from shepherd.cli.provider_test import run_test

    book = _book()
    raise typer.Exit(run_test(book.pick(name), book))


@provider.command("remove")
def remove(name: Name) -> None:
    """Forget a provider and its stored key."""
    book = _book()
    removed = book.store.get(name)
    book.secrets.forget(removed)
    book.store.remove(name)
    _tell(f"Provider {name} is removed.")
    _stop_using(name)


def _stop_using(name: str) -> None:
    """Take the provider out of the user's settings, if it is there."""
    from shepherd.config.edit import unset_value  # loads tomlkit

    config = load_config(Path.cwd(), os.environ)
    path = Paths.from_env(os.environ).user_file
    source = config.source(SETTING)
    if config.model.provider.partition("/")[0] == name and source.path == path:
        unset_value(path, SETTING)
        _tell("The local model answers from now on.")


def _given_key(added: Provider, text: str | None, book: ProviderBook, *, stored: bool) -> str:
    """The key to store; "" where there is none or it is elsewhere."""
    question = f"Key of {added.name}: "
    if text == STDIN or (text is None and stored):
        return read_key(question)
    if text is not None:
        return text
    vendor = vendor_of(added)
    asks = vendor is not None and not added.api_key and sys.stdin.isatty()
    if not asks or book.key(added).value:
        return ""
    return read_key(f"{question}(empty = none) ", needed=False)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--header {text}: write --header NAME=VALUE")
    return name.strip(), value.strip()


def _book() -> ProviderBook:
    return ProviderBook.from_env(os.environ)


def _config(context: typer.Context) -> Config:
    overrides = cast(Mapping[str, object], context.obj)
    return load_config(Path.cwd(), os.environ, overrides)


def _tell(*sentences: str) -> None:
    text = " ".join(sentence for sentence in sentences if sentence)
    sys.stderr.write(f"{clean(text)}\n")
