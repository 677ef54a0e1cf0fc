"""Which backend answers, by the settings."""

import os
from functools import partial

from shepherd.backends.base import ONE, Backend, Concurrency
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config


async def open_backend(
    config: Config, *, parallel: Concurrency = ONE, providers: ProviderBook | None = None
) -> Backend:
    """Load the configured model, or connect to the configured provider.

    `parallel` is for settings that leave it open; `providers` are the user's if not given. Raises
    ModelLoadError when a model can't be loaded, ConfigError for a bad setting, AccessError,
    UnreachableError and InvalidRequestError for a provider that does not answer as it should.
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
