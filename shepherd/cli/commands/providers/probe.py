"""Tests a provider and reports the result."""

import asyncio
from collections.abc import Callable
from time import perf_counter

from shepherd.backends.connect import Examination, address_of, examine
from shepherd.backends.providers import open_provider
from shepherd.config.provider import Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import BackendError

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
    secret = await asyncio.to_thread(book.key, provider)
    key = f"key {secret.masked} ({secret.source})" if secret.value else "no key"
    say(f"{provider.name}: {provider.type} at {address_of(provider)}, {key}")
    started = perf_counter()
    result = await examine(provider, book)
    say(f"connected in {1000 * (perf_counter() - started):.0f} ms")
    for line in _findings(provider, result):
        say(line)
    return 1 if result.problem else 0


def _findings(provider: Provider, examination: Examination) -> list[str]:
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
