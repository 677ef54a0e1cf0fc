"""What the server notes about a request while it serves it, for logs and measurements."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

HUNG_UP = 499
"""The status of a request whose client did not wait for the end of the answer."""

SERVER = "server"
"""The wire of the paths that belong to no API, such as `/health`."""


@dataclass(slots=True)
class RequestRecord:
    """One request; times are those of `time.perf_counter`.

    `wire` is the name of its API. `model` is the name of the model that answers, `key` that of the
    API key. `waited` are the seconds for which it waited for a model, and `first_token` those from
    its arrival to the first text.
    """

    id: str
    started: float = field(default_factory=time.perf_counter)
    wire: str = SERVER
    model: str = ""
    key: str = ""
    status: int = HUNG_UP
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    waited: float = 0.0
    first_token: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds since the request came."""
        return time.perf_counter() - self.started


_current: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def current_record() -> RequestRecord | None:
    """The record of the request that is being served; None outside of requests.

    Tasks that a request starts have its record too, as a response in the background.
    """
    return _current.get()


@contextmanager
def recording(record: RequestRecord) -> Generator[None]:
    """Serve a request with this record."""
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)
