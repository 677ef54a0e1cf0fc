"""Opens the backend that the settings choose."""

import os
from functools import partial

from shepherd.backends.base import ONE, Backend, Concurrency
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config


async def open_backend(
    config: Config, *, parallel: Concurrency = ONE, providers: ProviderBook | None = None
) -> Backend:
    """Load the configured model, or connect to the configured provider.

    `parallel` is the default if the settings don't set it; `providers` are the user's by default.
    Raises ModelLoadError if a model can't be loaded, and ConfigError for a bad setting. Raises
    AccessError, UnreachableError and InvalidRequestError for a provider that does not answer
    properly.
    """
    if not config.model.provider:
        from shepherd.backends.local import open_local

        return await open_local(config, parallel=parallel)
    from shepherd.backends.providers import open_provider

    book = providers or ProviderBook.from_env(os.environ)
    chosen = book.pick(config.model.provider)
    if not config.model.fallback:
        return await open_provider(chosen, book, config, parallel=parallel)
    from shepherd.backends.fallback import Candidate, FallbackBackend

    order = [chosen, *(p for p in book.all() if p.name != chosen.name)]
    return await FallbackBackend.open(
        [
            Candidate(p.label, partial(open_provider, p, book, config, parallel=parallel))
            for p in order
        ]
    )
