"""Where a call of a tool comes from, for those who decide on it and for the audit."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from shepherd.server.access.current import current_key


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The request behind a call: its id, its path, the name of its key, and the model."""

    request: str = ""
    path: str = ""
    key: str = ""
    model: str = ""


_NOWHERE = CallOrigin()
_current: ContextVar[CallOrigin] = ContextVar("origin_of_call", default=_NOWHERE)


def current_origin() -> CallOrigin:
    """The origin of the call that runs in this task."""
    key = current_key()
    return replace(_current.get(), key="" if key is None else key.name)


@contextmanager
def serving_request(id: str, path: str) -> Generator[None]:
    """Serve a request; tasks that it starts belong to it."""
    token = _current.set(CallOrigin(id, path))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def calling_for(model: str) -> Generator[None]:
    """Run a call of this model."""
    token = _current.set(replace(_current.get(), model=model))
    try:
        yield
    finally:
        _current.reset(token)
