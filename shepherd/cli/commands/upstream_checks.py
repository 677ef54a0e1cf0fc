"""Asks each server of a provider with several whether it answers."""

import asyncio

from shepherd.backends.connect import check_answer
from shepherd.config.providers.book import ProviderBook
from shepherd.config.providers.provider import Provider
from shepherd.config.providers.type_names import PROVIDER_TYPES
from shepherd.errors import ShepherdError

SECONDS = 5.0
"""The longest wait for a server."""


def check_upstreams(book: ProviderBook, provider: Provider) -> list[tuple[str, str]]:
    """Each address, and why its server does not answer; "" if it does.

    All servers get one request for their models. Those of a plugin get none.
    """
    return asyncio.run(_check_all(book, provider)) if provider.type in PROVIDER_TYPES else []


async def _check_all(book: ProviderBook, provider: Provider) -> list[tuple[str, str]]:
    checks = (_problem(book, provider.at(url)) for url in provider.urls)
    return list(zip(provider.urls, await asyncio.gather(*checks), strict=True))


async def _problem(book: ProviderBook, provider: Provider) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            await check_answer(provider, book)
    except TimeoutError:
        return f"It gave no answer in {SECONDS:.0f} s."
    except ShepherdError as error:
        return str(error)
    return ""
