"""Whose request it is, for an engine that several people share."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

from msgspec import Struct


class TenantKind(StrEnum):
    """Who waits for the answers: a person, an agent, or nobody."""

    INTERACTIVE = "interactive"
    AGENT = "agent"
    BATCH = "batch"


class Tenant(Struct, frozen=True):
    """Who uses the engine, and how much of it they get beside others.

    A tenant with `share` 2 gets twice the seconds of one with 1. All requests without a key belong
    to one tenant, whose name is "". One that `shares_prompts` reuses what others have sent of
    the same system message and tools, and they what it has sent.
    """

    name: str = ""
    share: float = 1.0
    kind: TenantKind = TenantKind.AGENT
    shares_prompts: bool = True


_NOBODY = Tenant()
_current: ContextVar[Tenant] = ContextVar("tenant", default=_NOBODY)


def current_tenant() -> Tenant:
    """The tenant of the request that is being served."""
    return _current.get()


@contextmanager
def serving_tenant(tenant: Tenant) -> Generator[None]:
    """Serve a request of this tenant; tasks that it starts belong to them, too."""
    token = _current.set(tenant)
    try:
        yield
    finally:
        _current.reset(token)
