"""What the server notes of a request while it serves it, and what the request's headers say.

The record stands in the scope of the request for the layers around the application, and in a
context variable for the code that has no scope: limits, the audit, backends. Tasks that a request
starts have its record too, as a response in the background.
"""

import re
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import cast

from msgspec import Struct, field
from starlette.requests import Request
from starlette.types import Scope

from shepherd.events import PrefillProgress
from shepherd.messages import Message
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import Admission
from shepherd.server.errors import ApiError, ErrorReply, ErrorShape

HUNG_UP = 499
"""The status of a request whose client did not wait for the end of the answer."""

SERVER = "server"
"""The wire of the paths that belong to no API, such as `/health`."""

TRUNCATION_HEADER = "x-shepherd-truncation"
"""`auto`: the oldest turns leave if the conversation does not fit; `disabled` refuses it."""

TOOLS_HEADER = "x-shepherd-tools"
"""`off`: the server runs no tools for this request."""

EVICTED_HEADER = "x-shepherd-evicted"
"""In the response: how many of the oldest messages have left."""

QUEUE_HEADER = "x-shepherd-queue"
"""In the response: the place at which the request has waited, and the seconds expected then."""

LEFT_OUT_HEADER = "x-shepherd-tools-left-out"
"""In the response: the types of tools that run at their vendor only, and were not offered."""

UNENFORCED_HEADER = "x-shepherd-schema-not-enforced"
"""In the response: the keywords of the answer's JSON schema that it may break."""

_PLAIN = re.compile(r"[A-Za-z0-9_.$: -]{1,64}")
_MAX_NAMES = 16
_KEY = "record"


class RequestRecord(Struct, eq=False):
    """One request; times are those of `time.perf_counter`.

    `shape` is that of the errors of its API, and `wire` the name of that API. `model` is the name
    of the model that answers. `admission` has its key, if one is needed. `waited` are the seconds
    for which it waited for a model, and `first_token` those from its arrival to the first text.
    `has_begun` and `has_ended` are about its response. `streams` tells that an answer has begun
    which the frame of an error can end; `failure` is then the status of that error. While the
    prompt waits for others, `waits` tells its place. `is_uncounted` tells that the request does not
    count against its key's limits yet.
    """

    id: str
    shape: ErrorShape | None = None
    path: str = ""
    wire: str = SERVER
    started: float = field(default_factory=time.perf_counter)
    model: str = ""
    admission: Admission | None = None
    status: int = HUNG_UP
    has_begun: bool = False
    has_ended: bool = False
    streams: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    waited: float = 0.0
    first_token: float | None = None
    failure: int = 0
    waits: str = ""
    is_uncounted: bool = False

    @property
    def seconds(self) -> float:
        """The seconds since the request came."""
        return time.perf_counter() - self.started

    @property
    def key(self) -> ApiKey | None:
        """The key with which it came, None where none is needed."""
        return None if self.admission is None else self.admission.key

    @property
    def owner(self) -> str:
        """The name of the key, "" where none is needed."""
        return "" if self.key is None else self.key.name

    def error_reply(self, error: ApiError) -> ErrorReply:
        """The response for an error, in the shape of the API."""
        return self._shape.reply(replace(error, request_id=self.id))

    def error_event(self, error: ApiError) -> str:
        """The last frame of a stream that the error ends, in the shape of the API."""
        self.failure = self.error_reply(error).status
        return self._shape.event(replace(error, request_id=self.id))

    @property
    def _shape(self) -> ErrorShape:
        assert self.shape is not None  # only records of tests have none
        return self.shape


_current: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)
_calling: ContextVar[str] = ContextVar("calling_model", default="")


def record_of(scope: Scope) -> RequestRecord:
    """The record in a scope."""
    return cast(RequestRecord, scope["state"][_KEY])


@contextmanager
def recording(record: RequestRecord, scope: Scope) -> Generator[None]:
    """Serve the request of a scope with this record."""
    scope["state"] = {**scope.get("state", {}), _KEY: record}
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)


def current_record() -> RequestRecord | None:
    """The record of the request that is being served; None outside of requests."""
    return _current.get()


def current_key() -> ApiKey | None:
    """The key of the request that is being served; None if no key is needed."""
    record = _current.get()
    return None if record is None else record.key


def key_has(scope: KeyScope) -> bool:
    """Whether the key of the request has the scope, or no key is needed."""
    key = current_key()
    return key is None or scope in key.scopes


class CallOrigin(Struct, frozen=True):
    """The request behind a call of a tool: its id, its path, the name of its key, and the model."""

    request: str = ""
    path: str = ""
    key: str = ""
    model: str = ""


def current_origin() -> CallOrigin:
    """The origin of the call that runs in this task."""
    record = _current.get() or RequestRecord("")  # outside of requests all of it is empty
    return CallOrigin(record.id, record.path, record.owner, _calling.get())


@contextmanager
def calling_for(model: str) -> Generator[None]:
    """Run a call of this model."""
    token = _calling.set(model)
    try:
        yield
    finally:
        _calling.reset(token)


class RequestOptions(Struct, frozen=True):
    """What the headers of a request say on every API.

    `owner` is the name of its key, "" without keys. `response_headers` grow until the response
    begins.
    """

    owner: str = ""
    truncates: bool = False
    uses_tools: bool = True
    response_headers: dict[str, str] = field(default_factory=dict[str, str])

    def note_evicted(self, messages: Sequence[Message]) -> None:
        """Count messages that have left."""
        count = int(self.response_headers.get(EVICTED_HEADER, "0")) + len(messages)
        self.response_headers[EVICTED_HEADER] = str(count)

    def note_place(self, progress: PrefillProgress) -> None:
        """Tell the first place at which the prompt waits."""
        if progress.place:
            text = f"position={progress.place}, expected={progress.seconds:.0f}"
            self.response_headers.setdefault(QUEUE_HEADER, text)

    def note_names(self, header: str, names: Iterable[str]) -> None:
        """Tell names in a header of the response; clients may have put any text into them."""
        plain = [name for name in dict.fromkeys(names) if _PLAIN.fullmatch(name)]
        if plain:
            self.response_headers[header] = ", ".join(plain[:_MAX_NAMES])


def options_of(request: Request) -> RequestOptions:
    """The options of a request; raises ApiError for a value that a header does not have."""
    return RequestOptions(
        owner=record_of(request.scope).owner,
        truncates=_switch(
            request, TRUNCATION_HEADER, {"auto": True, "disabled": False}, "disabled"
        ),
        uses_tools=_switch(request, TOOLS_HEADER, {"on": True, "off": False}, "on"),
    )


def _switch(request: Request, name: str, values: Mapping[str, bool], default: str) -> bool:
    """What a header of two values says; raises ApiError for a third one."""
    value = request.headers.get(name, default).strip().lower()
    if value not in values:
        choices = " or ".join(values)
        raise ApiError(400, f"{name}: must be {choices}", "invalid_value", name)
    return values[value]
