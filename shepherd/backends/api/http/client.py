"""HTTP for all providers: addresses, time-outs, typed failures, retries."""

import asyncio
import ipaddress
import json
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from msgspec import Struct, field, structs

from shepherd import errors, json_text, messages
from shepherd.backends.api.adapter import Adapter, ApiRequest
from shepherd.backends.api.http.failures import RequestTarget, no_api, refused, unreachable
from shepherd.backends.api.http.retry import (
    RateLimiter,
    RateLimits,
    RetryPolicy,
    TellPause,
    Timing,
    retry_after,
    retrying,
)
from shepherd.json_text import as_object
from shepherd.version import __version__

_CREDENTIALS = re.compile(r"auth|key|token|cookie", re.IGNORECASE)


class Endpoint(Struct, frozen=True):
    """A provider's address; `name` is the user's, `headers` are sent with each request.

    `http2` enables HTTP/2, which a vendor's own host supports. Proxies buffer it, and local servers
    don't support it. `stored` is False if only the command line describes the provider.
    """

    base_url: str
    api_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
    http2: bool = False
    stored: bool = True

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"  # the whole would print the key

    @property
    def label(self) -> str:
        """The user's name for it, or its host."""
        return self.name or urlsplit(self.base_url).netloc

    @property
    def proxy(self) -> str:
        """The host and port of the environment's proxy that it is reached by; "" for none."""
        address, proxies = urlsplit(self.base_url), getproxies()
        if self.is_near or proxy_bypass(address.hostname or ""):
            return ""
        proxy = proxies.get(address.scheme) or proxies.get("all", "")
        return urlsplit(proxy if "//" in proxy else f"//{proxy}").netloc.rpartition("@")[2]

    @property
    def has_key(self) -> bool:
        """Whether requests carry credentials, as a key or in a header of the user's."""
        return bool(self.api_key) or any(_CREDENTIALS.search(name) for name in self.headers)

    @property
    def is_near(self) -> bool:
        """Whether it is on this machine or network; it may take long to read a prompt."""
        host = (urlsplit(self.base_url).hostname or "").lower()
        try:
            address = ipaddress.ip_address(host)
        except ValueError:  # it is a name; one without a dot is only known in this network
            ends = (".local", ".localhost", ".lan", ".internal")
            return bool(host) and ("." not in host or host.endswith(ends))
        return address.is_private or address.is_loopback or address.is_link_local

    def url(self, request: ApiRequest) -> str:
        """The URL of a request: its path is appended to the base URL; `../` goes up."""
        return urljoin(self.base_url.rstrip("/") + "/", request.path.lstrip("/"))


T = TypeVar("T")

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0
READ_SECONDS = 600.0
"""The time-out until the next byte. Local servers may read long prompts and have no limit."""

MAX_ERROR_BYTES = 256 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
"""The maximum of bytes that are read of an error, and of an answer that is not a stream."""

_KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
_MIN_SECRET_LENGTH = 8
"""Shorter values of headers may be words that a provider's message contains anyway."""


class ClientOptions(Struct, frozen=True):
    """Time-outs, retries and rate limits of a client; `is_test` as in `RequestTarget`."""

    retry: RetryPolicy = RetryPolicy()
    limits: RateLimits = RateLimits()
    timing: Timing = Timing()
    is_test: bool = False


def new_http(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client for one provider; local servers are reached without the environment's proxies.

    A server nearby may read a long prompt for many minutes, so nothing limits its silence. The
    system's keep-alive notices if it is gone.
    """
    timeout = httpx.Timeout(
        connect=CONNECT_SECONDS,
        write=WRITE_SECONDS,
        read=None if endpoint.is_near else READ_SECONDS,
        pool=None,  # no request waits for a connection, as their number has no limit
    )
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60)
    if not endpoint.is_near:
        http2 = endpoint.http2 and not getproxies()  # proxies buffer HTTP/2
        return httpx.AsyncClient(timeout=timeout, limits=limits, http2=http2)
    # Loading certificates takes some 40 ms, and without TLS there is no use for them.
    is_plain = endpoint.base_url.lower().startswith("http://")
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True
    transport = httpx.AsyncHTTPTransport(verify, limits=limits, socket_options=_KEEP_ALIVE)
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


class ApiClient:
    """Makes one provider's requests."""

    def __init__(
        self,
        endpoint: Endpoint,
        adapter: Adapter,
        options: ClientOptions | None = None,
        *,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """`http` is shared and stays open; without it the client opens its own."""
        self._options = options or ClientOptions()
        self._endpoint = endpoint
        self._owns_http = http is None
        self._http = http or new_http(endpoint)
        self.limiter = RateLimiter(self._options.limits, self._options.timing)
        self.first_byte_seconds: float | None = None
        """The time for a prompt until its answer begins; None = no limit."""
        self._headers = {
            "user-agent": f"shepherd/{__version__}",
            **adapter.auth(endpoint.api_key),
        }

    @property
    def clock(self) -> Callable[[], float]:
        """A clock in seconds; its start does not matter."""
        return self._options.timing.clock

    def target(self, model: str = "") -> RequestTarget:
        """The provider and the model of a request, for messages to the user."""
        endpoint = self._endpoint
        values = (endpoint.api_key, *endpoint.headers.values())
        secrets = tuple(value for value in values if len(value) >= _MIN_SECRET_LENGTH)
        return RequestTarget(
            endpoint.label,
            model,
            endpoint.base_url,
            secrets,
            proxy=endpoint.proxy,
            stored=endpoint.stored,
            has_key=endpoint.has_key,
            is_test=self._options.is_test,
        )

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], tell: TellPause = lambda _why, _seconds: True
    ) -> T:
        """The attempt's result, repeated after transient failures; raises BackendError."""
        return await retrying(attempt, self._options.retry, self._options.timing, tell)

    @asynccontextmanager
    async def opened(
        self, request: ApiRequest, model: str = ""
    ) -> AsyncGenerator[httpx.Response, None]:
        """The answer to one request, before its body is read.

        Leaving the context closes the connection unless the whole body was read.

        Raises Failure for a failed connection and for an answer with an error status.
        """
        target = self.target(model)
        url, headers = self._endpoint.url(request), self._all_headers(request)
        content = None if request.body is None else json_text.json_bytes(request.body)
        try:
            async with self._http.stream(
                request.method, url, content=content, headers=headers
            ) as response:
                if not response.is_success:
                    await self._refuse(target, response)
                if response.headers.get("content-type", "").startswith("text/html"):
                    raise no_api(target)  # such as a server's own site, beside its API
                yield response
        except httpx.ConnectTimeout as error:  # it has cost `CONNECT_SECONDS` already
            raise unreachable(target, reason(error), transient=False) from error
        except httpx.ConnectError as error:
            raise unreachable(target, reason(error)) from error
        except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeEncodeError) as error:
            raise refused(target, 400, f"the address or a header is wrong: {error}") from error
        except httpx.RequestError as error:
            raise unreachable(target, f"the connection broke ({reason(error)})") from error

    async def fetch(self, request: ApiRequest, *, max_attempts: int = 0) -> messages.JsonObject:
        """The JSON object that answers a request; a list comes as {"data": list}.

        `max_attempts` 0 = as the policy says. Raises BackendError.
        """

        async def attempt() -> messages.JsonObject:
            async with self.opened(request) as response:
                return _decoded(await _read(response, MAX_BODY_BYTES))

        policy = self._options.retry
        policy = structs.replace(policy, max_attempts=max_attempts) if max_attempts else policy
        return await retrying(attempt, policy, self._options.timing)

    async def aclose(self) -> None:
        """Close the connections, unless they are shared."""
        if self._owns_http:
            await self._http.aclose()

    async def _refuse(self, target: RequestTarget, response: httpx.Response) -> None:
        """Raise the Failure for an answer with an error status."""
        try:
            content = await _read(response, MAX_ERROR_BYTES)
        except httpx.RequestError:  # the status alone tells enough
            content = b""
        text = content.decode("utf-8", "replace")
        now = self._options.timing.now()
        after = retry_after(response.headers, _decoded(content), now)
        raise refused(target, response.status_code, text, after)

    def _all_headers(self, request: ApiRequest) -> Mapping[str, str]:
        """The headers of a request; those that the user has set replace all others."""
        own = {"content-type": "application/json"} if request.body is not None else {}
        if request.stream:
            own["accept-encoding"] = "identity"  # compressed data arrives late
        return {**self._headers, **own, **request.headers, **self._endpoint.headers}


def reason(error: BaseException) -> str:
    """A readable text for a transport's error: the system's, if that is the cause."""
    if isinstance(error, httpx.TimeoutException):
        return f"it takes too long ({type(error).__name__})"
    cause: BaseException | None = error
    while cause is not None:  # httpx wraps the system's error several times
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


async def _read(response: httpx.Response, max_bytes: int) -> bytes:
    """The body's first bytes; a longer body is not read to its end."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size >= max_bytes:
            break
    return b"".join(pieces)[:max_bytes]


def _decoded(content: bytes) -> messages.JsonObject:
    """The object of an answer, or its list as {"data": list}; {} for anything else."""
    try:
        value = cast(object, json.loads(content))
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list):
        return {"data": value}
    return as_object(value)


CONTACT_SECONDS = 5.0
CACHE_SECONDS = 5.0
"""Seconds: the longest wait for an answer, and the time for which a result is reused."""


class Contact:
    """Checks whether a provider answers at all; simultaneous callers share one request."""

    def __init__(self, client: ApiClient, adapter: Adapter) -> None:
        self._client = client
        self._adapter = adapter
        self._asking = asyncio.Lock()
        self._last_result = False
        self._result_expires_at: float | None = None

    async def there(self) -> bool:
        """Whether an answer arrived; a refusal is also an answer."""
        async with self._asking:  # who comes meanwhile waits for the same answer
            expires_at = self._result_expires_at
            if expires_at is None or self._client.clock() >= expires_at:
                self._last_result = await self._ask()
                self._result_expires_at = self._client.clock() + CACHE_SECONDS
            return self._last_result

    async def _ask(self) -> bool:
        """Whether the provider answers a request for its models, in whatever way."""
        try:
            async with asyncio.timeout(CONTACT_SECONDS):
                await self._client.fetch(self._adapter.models(), max_attempts=1)
        except (TimeoutError, errors.UnreachableError):
            return False
        except errors.BackendError:
            pass  # a wrong key, no list of models, too many requests
        return True
