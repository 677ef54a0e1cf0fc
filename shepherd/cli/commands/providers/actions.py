"""The actions of provider commands, and the console where they were typed: shell or prompt.

Keys are read and written in threads, because a keyring may wait for its user's password.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from shepherd.cli.commands.output import note, show
from shepherd.cli.commands.providers import view
from shepherd.cli.request import load_settings
from shepherd.cli.terminal.secrets import STDIN, interrupted_by, read_key
from shepherd.config import paths, provider_book, secrets, settings
from shepherd.config.load import load_config
from shepherd.config.provider import LOCAL, Provider, make_provider, vendor_of
from shepherd.errors import ConfigError, UsageError
from shepherd.validation import did_you_mean

SETTING = "model.provider"
KEY = "api_key"
_PLACES = ("", "none", "file", "keyring")
"""Places of a key that are no variables; any other text is a key itself."""

_HEADER = "headers."
_NUMBERS: Mapping[object, type[int] | type[float]] = {int: int, float: float}


class Console:
    """The shell: results go to stdout, the rest to stderr, and no running conversation follows.

    The prompt is a subclass. `command` is the beginning of the commands in this place.
    """

    command = "shepherd provider"

    def __init__(self, book: provider_book.ProviderBook) -> None:
        self.book = book

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer questions."""
        return sys.stdin.isatty()

    def show(self, text: str) -> None:
        """Show the requested data."""
        show(text)

    def tell(self, text: str) -> None:
        """Report what was done."""
        note(text)

    async def read(self, question: str) -> str:
        """Read a line without an echo."""
        with interrupted_by(signal.SIGINT):  # which an event loop would delay until the answer
            return read_key(question, needed=False)

    async def switch(self, selector: str) -> bool:
        """Make the running conversation continue with that provider; returns whether it does."""
        return True

    async def before_removing(self, name: str) -> None:
        """Make the running conversation leave the provider."""

    async def after_change(self, name: str, key: str = "") -> None:
        """React to an added or removed provider, or to its changed setting `key`."""


Action: TypeAlias = Callable[[Console], Awaitable[int]]
"""A prepared command; calling it runs the command and returns the exit code."""


async def _ask_key(console: Console, question: str, *, needed: bool = True) -> str:
    """Read a key without an echo; raises UsageError for an empty one if `needed`."""
    key = (await console.read(question)).strip()
    if needed and not key:
        raise UsageError("The key is empty; nothing was done.")
    return key


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
    if name in [provider.name for provider in book.store.all()]:
        raise UsageError(f"There is a provider {name} already; `provider set` changes it.")
    place = "keyring" if keyring else "file"
    added = _checked(name, values)
    secret = await _key_to_store(console, added, key, must_have_one=keyring)
    if secret:
        await asyncio.to_thread(book.secrets.store, name, secret, place)
        added = _checked(name, {**values, KEY: place})
    book.store.save(added)
    await _tell_with_key_advice(console, f"Provider {name} is added.", added)
    await console.after_change(name)
    if use:
        return await use_provider(console, name)
    begin = console.command
    console.tell(f"`{begin} test {name}` tries it, `{begin} use {name}` chooses it.")
    return 0


async def list_providers(console: Console, overrides: Mapping[str, object]) -> int:
    """Show all providers in order; a star marks the one that the settings choose."""
    book, config = console.book, load_settings(Path.cwd(), os.environ, overrides)
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


async def show_provider(console: Console, name: str) -> int:
    """Show the stored properties of a provider without a request to it."""
    provider = console.book.pick(name)
    for key, text in await asyncio.to_thread(view.details, provider, console.book):
        console.show(f"{key:<13} {text}")
    return 0


async def set_provider(console: Console, name: str, key: str, value: str | None) -> int:
    """Change one setting of a provider; without a value, or with "-", the key is asked for."""
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


async def use_provider(console: Console, selector: str) -> int:
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


async def test_provider(console: Console, selector: str) -> int:
    """Request the provider's models and its context size."""
    return await view.run_test(console.book.pick(selector), console.book, console.show)


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
    path = paths.Paths.from_env(os.environ).user_file
    source = config.source(SETTING)
    if config.model.provider.partition("/")[0] == name and source.path == path:
        unset_value(path, SETTING)
        console.tell("The local model answers from now on.")


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
