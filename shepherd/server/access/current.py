"""The key of the request that is being served, for the code that serves it."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from shepherd.server.access.key import ApiKey, KeyScope

_current: ContextVar[ApiKey | None] = ContextVar("key_of_request", default=None)


def current_key() -> ApiKey | None:
    """The key of the request; None if no key is needed.

    Tasks that a request starts have its key too, as a response in the background.
    """
    return _current.get()


def key_has(scope: KeyScope) -> bool:
    """Whether the key of the request has the scope, or no key is needed."""
    key = current_key()
    return key is None or scope in key.scopes


@contextmanager
def serving(key: ApiKey) -> Generator[None]:
    """Serve a request that came with `key`."""
    token = _current.set(key)
    try:
        yield
    finally:
        _current.reset(token)
