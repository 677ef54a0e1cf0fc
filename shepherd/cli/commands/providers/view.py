"""Providers and tests of them in lines of text, and the console where commands are typed.

All of it is for the shell and for the prompt, so nothing here imports Typer.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import PurePath
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shepherd.backends.opening import open_provider
from shepherd.cli.commands.output import note, show
from shepherd.cli.terminal.secrets import interrupted_by, read_key
from shepherd.config.provider import Provider, vendor_of
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from shepherd.backends.connect import Examination


class Console:
    """The shell: results go to stdout, the rest to stderr, and no running conversation follows.

    The prompt is a subclass. `command` is the beginning of the commands in this place.
    """

    command = "shepherd provider"

    def __init__(self, book: ProviderBook) -> None:
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


ADD_OPTIONS = "add NAME --type TYPE --model MODEL"
HOW_TO_ADD = f"shepherd provider {ADD_OPTIONS}"


def summary(provider: Provider, book: ProviderBook) -> str:
    """Type, model, place and key of a provider in one line."""
    model = provider.model or "(its only model)"
    parts = [f"{provider.type:<10}", f"{model:<28}", _place(provider), _key_place(provider, book)]
    return "  ".join(part for part in parts if part).rstrip()


def details(provider: Provider, book: ProviderBook) -> list[tuple[str, str]]:
    """The stored properties of a provider; never its key or a header's value."""
    facts = book.facts(provider)
    context = f"{facts.context:,} tokens ({facts.context_source})" if facts.context else ""
    rows = [
        ("name", provider.name),
        ("type", provider.type),
        ("model", provider.model or "(its only model)"),
        ("address", _address(provider)),
        ("key", _key(provider, book)),
        ("context", context or "(what the server says)"),
        ("output limit", f"{facts.output:,} tokens" if facts.output else ""),
        ("can", ", ".join(name for name in ("vision", "thinking") if getattr(facts, name))),
        ("effort", provider.effort),
        ("dialect", provider.dialect),
        ("headers", ", ".join(provider.headers)),
        ("priority", str(provider.priority)),
        ("asked", "" if provider.ask else "by no other model"),
    ]
    return [(name, text) for name, text in rows if text]


def key_advice(provider: Provider, book: ProviderBook) -> str:
    """Advice for a provider that needs a key and has none; "" if nothing is missing."""
    vendor = vendor_of(provider)
    if vendor is None or provider.api_key or book.key(provider).value:
        return ""
    return (
        f"There is no key yet: set {vendor.variables[0]}, or run "
        f"`shepherd provider set {provider.name} api-key -`."
    )


def _place(provider: Provider) -> str:
    """The host of the provider, or how many servers it has."""
    urls = provider.urls
    if len(urls) > 1:
        return f"{len(urls)} servers"
    return urlsplit(urls[0]).netloc if urls else ""


def _address(provider: Provider) -> str:
    """The whole addresses of the servers, or why one can't be used."""
    if provider.is_local:
        return "(in this process)"
    from shepherd.backends.connect import address_of

    try:
        return ", ".join(address_of(provider.at(url)) for url in provider.urls or ("",))
    except ConfigError as error:
        return str(error)


def _key_place(provider: Provider, book: ProviderBook) -> str:
    """Where the key is, in two words; "" if the provider needs none and has none."""
    try:
        secret = book.key(provider)
    except ConfigError:
        return "key missing"
    if secret.value:
        return f"key: {PurePath(secret.source).name}"
    return "no key" if vendor_of(provider) is not None else ""


def _key(provider: Provider, book: ProviderBook) -> str:
    """The key with its middle hidden, and where it is, or why it can't be read."""
    try:
        secret = book.key(provider)
    except ConfigError as error:
        return str(error)
    return f"{secret.masked} ({secret.source})" if secret.value else "(none)"


MAX_LISTED_MODELS = 30


async def run_test(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    """Report the provider's state in lines; returns the exit code. Raises ShepherdError."""
    if provider.is_local:
        return await _test_local(provider, book, say)
    if len(provider.urls) > 1:
        worst = 0
        for url in provider.urls:
            try:
                worst = max(worst, await _test_server(provider.at(url), book, say))
            except BackendError as error:  # the other servers are still tested
                say(str(error))
                worst = 1
        return worst
    return await _test_server(provider, book, say)


async def _test_server(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    """Connect to one server and report what it answers; returns the exit code."""
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
    """A line for the models that are listed, the chosen one, its context and its output limit."""
    models, window = examination.models, examination.window
    names = ", ".join(models[:MAX_LISTED_MODELS])
    left_out = len(models) - MAX_LISTED_MODELS
    more = f" and {left_out} more" if left_out > 0 else ""
    lines = [f"models ({len(models)}): {names}{more}" if names else "models: none are listed"]
    if examination.problem:
        return [*lines, examination.problem]
    if not examination.listing:  # a request to the model itself was the test
        note = " (it answers)"
    else:
        note = " (not in the list)" if models and examination.model not in models else ""
    lines.append(f"model: {examination.model}{note}")
    if not window.size:
        how = f"`shepherd provider set {provider.name} context-size TOKENS`"
        return [*lines, f"context: unknown; set it with {how}"]
    lines.append(f"context: {window.size:,} tokens, from {window.source}")
    limit = window.output_limit
    return [*lines, f"output limit: {limit:,} tokens"] if limit else lines


async def _test_local(provider: Provider, book: ProviderBook, say: Callable[[str], None]) -> int:
    """Load the model of a provider in this process, and end it."""
    backend = await open_provider(provider, book, Config())
    try:
        say(f"{provider.name}: {backend.info.id} runs in this process")
        say(f"context: {backend.info.context_size:,} tokens")
    finally:
        await backend.aclose()
    return 0
