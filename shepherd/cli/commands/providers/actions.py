"""The actions of provider commands, in the shell and in the prompt."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from shepherd.backends.opening import open_provider
from shepherd.cli.commands.providers.console import Console, ask_key
from shepherd.cli.commands.providers.parsing import changed, checked, with_key
from shepherd.cli.commands.providers.view import HOW_TO_ADD, details, key_advice, summary
from shepherd.cli.request import load_settings
from shepherd.cli.terminal.secrets import STDIN
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider import LOCAL, Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.config.vendors import vendor_of
from shepherd.errors import BackendError, UsageError

if TYPE_CHECKING:
    from shepherd.backends.connect import Examination

SETTING = "model.provider"
KEY = "api_key"


async def add_provider(
    console: Console,
    name: str,
    values: Mapping[str, object],
    key: str | None,
    *,
    keyring: bool,
    use: bool,
) -> int:
    """Store a provider, and its key separately; `key` "-" asks for the key."""
    book = console.book
    if name in [p.name for p in book.store.all()]:
        raise UsageError(f"There is a provider {name} already; `provider set` changes it.")
    place = "keyring" if keyring else "file"
    added = checked(name, values)
    secret = await _key_to_store(console, added, key, stored=keyring)
    if secret:
        await asyncio.to_thread(book.secrets.store, name, secret, place)
        added = checked(name, {**values, KEY: place})
    book.store.save(added)
    _tell(console, f"Provider {name} is added.", await _key_advice(added, book))
    await console.after_change(name)
    if use:
        return await use_provider(console, name)
    _tell(
        console,
        f"`{console.command} test {name}` tries it, `{console.command} use {name}` chooses it.",
    )
    return 0


async def list_providers(console: Console, overrides: Mapping[str, object]) -> int:
    """Show all providers in order; a star marks the one that the settings choose."""
    book, config = console.book, load_settings(Path.cwd(), os.environ, overrides)
    providers = book.all()
    current = config.model.provider.partition("/")[0]
    width = max((len(p.name) for p in providers), default=0)
    for one in providers:
        star = "*" if one.name == current else " "
        console.show(f"{star} {one.name:<{width}}  {await asyncio.to_thread(summary, one, book)}")
    for warning in book.warnings():
        console.tell(warning)
    if not providers:
        console.tell(f"No providers yet; add one: `{HOW_TO_ADD}`.")
    if not current:
        console.tell(f"{config.model.name} answers, in this process.")
    return 0


async def show_provider(console: Console, name: str) -> int:
    """Show the stored properties of a provider without a request to it."""
    provider = console.book.pick(name)
    for key, text in await asyncio.to_thread(details, provider, console.book):
        console.show(f"{key:<13} {text}")
    return 0


async def set_provider(console: Console, name: str, key: str, value: str | None) -> int:
    """Change one setting of a provider; without a value, or with "-", the key is asked for."""
    book = console.book
    before = book.stored(name)
    if key.replace("-", "_") == KEY and value in (None, STDIN):
        secret = await ask_key(console, f"Key of {name}: ")
        after = await asyncio.to_thread(with_key, before, secret, book)
    elif value is None:
        raise UsageError(f"Write a value behind {key}: `provider set {name} {key} VALUE`.")
    else:
        after = await asyncio.to_thread(changed, before, key, value, book)
    if before.api_key != after.api_key:
        await asyncio.to_thread(book.secrets.forget, before)
    book.store.save(after)
    console.tell(f"{name}: {key.replace('_', '-')} is changed.")
    await console.after_change(name, key.replace("-", "_"))
    return 0


async def use_provider(console: Console, selector: str) -> int:
    """Make a provider answer from now on, or the local model with LOCAL."""
    from shepherd.config.edit import set_value, unset_value  # imports tomlkit

    path = Paths.from_env(os.environ).user_file
    chosen = None if selector == LOCAL else console.book.pick(selector)
    if not await console.switch(selector):
        return 1
    if chosen is None:
        unset_value(path, SETTING)
        console.tell("The local model answers.")
        return 0
    set_value(path, SETTING, selector)
    _tell(console, f"{chosen.label} answers from now on.", await _key_advice(chosen, console.book))
    return 0


async def test_provider(console: Console, selector: str) -> int:
    """Request the provider's models and its context size."""

    return await run_test(console.book.pick(selector), console.book, console.show)


async def remove_provider(console: Console, name: str) -> int:
    """Delete a provider and its stored key, and stop using it."""
    book = console.book
    removed = book.stored(name)
    await console.before_removing(name)
    await asyncio.to_thread(book.secrets.forget, removed)
    book.store.remove(name)
    console.tell(f"Provider {name} is removed.")
    _stop_using(console, name)
    await console.after_change(name)
    return 0


def _stop_using(console: Console, name: str) -> None:
    """Remove the provider from the user's settings, if it is there."""
    from shepherd.config.edit import unset_value  # imports tomlkit

    config = load_config(Path.cwd(), os.environ)
    path = Paths.from_env(os.environ).user_file
    source = config.source(SETTING)
    if config.model.provider.partition("/")[0] == name and source.path == path:
        unset_value(path, SETTING)
        console.tell("The local model answers from now on.")


async def _key_to_store(
    console: Console, added: Provider, text: str | None, *, stored: bool
) -> str:
    """The key to store; "" if there is none or it is stored elsewhere."""
    question = f"Key of {added.name}: "
    if text == STDIN or (text is None and stored):
        return await ask_key(console, question)
    if text is not None:
        return text
    asks = vendor_of(added) is not None and not added.api_key and console.can_ask
    if not asks or (await asyncio.to_thread(console.book.key, added)).value:
        return ""
    return await ask_key(console, f"{question}(empty = none) ", needed=False)


async def _key_advice(provider: Provider, book: ProviderBook) -> str:
    return await asyncio.to_thread(key_advice, provider, book)


def _tell(console: Console, *sentences: str) -> None:
    console.tell(" ".join(sentence for sentence in sentences if sentence))


MAX_LISTED_MODELS = 30


async def run_test(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    """Report the provider's state in lines; returns the exit code. Raises ShepherdError."""
    if provider.is_local:
        return await _test_local(provider, book, say)
    if len(provider.urls) > 1:
        codes = [await _test_upstream(provider.at(url), book, say) for url in provider.urls]
        return max(codes)
    return await _test_server(provider, book, say)


async def _test_upstream(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    """One of several servers: its failure does not end the test of the others."""
    try:
        return await _test_server(provider, book, say)
    except BackendError as error:
        say(str(error))
        return 1


async def _test_server(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    from shepherd.backends.connect import address_of, examine  # imports httpx

    secret = await asyncio.to_thread(book.key, provider)
    key = f"key {secret.masked} ({secret.source})" if secret.value else "no key"
    say(f"{provider.name}: {provider.type} at {address_of(provider)}, {key}")
    started = perf_counter()
    result = await examine(provider, book)
    say(f"connected in {1000 * (perf_counter() - started):.0f} ms")
    for line in _findings(provider, result):
        say(line)
    return 1 if result.problem else 0


def _findings(provider: Provider, examination: "Examination") -> list[str]:
    models = examination.models
    names = ", ".join(models[:MAX_LISTED_MODELS])
    rest = len(models) - MAX_LISTED_MODELS
    more = f" and {rest} more" if rest > 0 else ""
    lines = [f"models ({len(models)}): {names}{more}" if names else "models: none are listed"]
    if examination.problem:
        return [*lines, examination.problem]
    listed = examination.model in models or not models
    note = "" if listed else " (not in the list)"
    lines.append(f"model: {examination.model}" + (note if examination.listing else " (it answers)"))
    if not examination.window.size:
        how = f"`shepherd provider set {provider.name} context-size TOKENS`"
        return [*lines, f"context: unknown; set it with {how}"]
    lines.append(f"context: {examination.window.size:,} tokens, from {examination.window.source}")
    limit = examination.window.output_limit
    return [*lines, f"output limit: {limit:,} tokens"] if limit else lines


async def _test_local(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    backend = await open_provider(provider, book, Config())
    try:
        say(f"{provider.name}: {backend.info.id} runs in this process")
        say(f"context: {backend.info.context_size:,} tokens")
    finally:
        await backend.aclose()
    return 0
