"""Whether a provider can answer, as far as this is known without a request."""

import asyncio
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from shepherd.config.providers.book import ProviderBook
from shepherd.config.providers.provider import Provider, missing_type
from shepherd.config.providers.vendors import vendor_of
from shepherd.errors import ConfigError
from shepherd.tasks import in_daemon_thread

CONNECT_SECONDS = 0.1
"""The longest wait for a server of this machine or network."""

MAX_SECONDS = 1.0
"""The longest wait for all checks together: a name or a key can take long to look up."""

_PORTS = {"http": 80, "https": 443}


async def answering(providers: Iterable[Provider], book: ProviderBook) -> set[str]:
    """The names of those that can answer; all are checked at once, in threads.

    A provider that is not checked within MAX_SECONDS can't.
    """
    checks = {
        asyncio.wrap_future(in_daemon_thread(partial(can_answer, provider, book))): provider.name
        for provider in providers
    }
    if not checks:
        return set()
    done, _ = await asyncio.wait(checks, timeout=MAX_SECONDS)
    return {checks[check] for check in done if check.result()}


def can_answer(provider: Provider, book: ProviderBook) -> bool:
    """Whether its key, its file or its server exists; True if only a request could tell.

    Connects only to servers of this machine and network, and blocks for the connection.
    """
    if missing_type(provider):
        return False
    if provider.is_local:
        path = Path(provider.model.removeprefix("script:")).expanduser()
        return not path.is_absolute() or path.exists()
    try:
        has_key = bool(book.key(provider).value)
    except ConfigError:
        return False
    from shepherd.backends.api.http.client import Endpoint
    from shepherd.backends.connect import address_of

    try:
        address = address_of(provider)
    except ConfigError:
        return False
    endpoint = Endpoint(address, headers=provider.headers)
    if endpoint.is_near:
        return _listens(address)
    needs_key = vendor_of(provider) is not None and provider.api_key != "none"
    return has_key or endpoint.has_key or not needs_key


def _listens(address: str) -> bool:
    """Whether a server accepts connections at the address."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except (OSError, UnicodeError):
        return False
