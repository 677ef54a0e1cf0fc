"""One HTTP exchange, redirects followed by hand so that each hop is checked."""

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.web.addresses import resolve_host

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
_CONNECT_TIMEOUT = 15.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OWN_HEADERS = {"user-agent": "shepherd", "accept": "*/*", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Request:
    """What to send."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `cut` if the body was longer than `data`."""

    status: int
    content_type: str
    charset: str | None
    location: str
    data: bytes
    cut: bool


def parse_url(text: str) -> "httpx.URL":
    """The URL in canonical form; raises ToolError unless it is http(s) with a host."""
    import httpx

    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"bad URL: {text} ({error})") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError(f"bad URL: {text} (http:// or https:// expected)")
    if url.userinfo:
        raise ToolError("bad URL: user and password do not belong there")
    return url.copy_with(host=_canonical_host(url.host), fragment=None)


async def exchange(request: Request, context: ToolContext) -> Reply:
    """The reply after redirects; at most `context.output_bytes` of its body are read.

    A redirect is returned, not followed, where it would carry a body to another host. Raises
    ToolError.
    """
    import httpx

    ssl_context = await asyncio.to_thread(httpx.create_ssl_context)
    async with httpx.AsyncClient(
        verify=ssl_context,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(context.timeout, connect=_CONNECT_TIMEOUT),
    ) as client:
        for _ in range(_MAX_REDIRECTS + 1):
            reply = await _one(client, request, context)
            following = _following(request, reply)
            if following is None:
                return reply
            request = following
    raise ToolError(f"too many redirects from {parse_url(request.url).host}")


async def _one(client: "httpx.AsyncClient", request: Request, context: ToolContext) -> Reply:
    import httpx

    url = parse_url(request.url)
    if context.denies(Access(AccessKind.NETWORK, str(url))):
        raise ToolError(f"denied by rule: network {url.host}")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = await resolve_host(url.host, port, allow_private=context.allow_private_hosts)
    problem: Exception | None = None
    for address in addresses:
        try:
            return await _send(client, request, url, address, context.output_bytes)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem = error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ToolError(f"cannot reach {url.host}: {_cause(error)}") from error
    raise ToolError(f"cannot reach {url.host}: {_cause(problem)}") from problem


async def _send(
    client: "httpx.AsyncClient", request: Request, url: "httpx.URL", address: str, limit: int
) -> Reply:
    headers = {**_OWN_HEADERS, **request.headers, "host": url.netloc.decode("ascii")}
    outgoing = client.build_request(
        request.method,
        url.copy_with(host=address),
        headers=headers,
        content=request.body or None,
        extensions={"sni_hostname": url.host},
    )
    response = await client.send(outgoing, stream=True)
    try:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > limit:
                break
    finally:
        await response.aclose()
    return Reply(
        response.status_code,
        response.headers.get("content-type", ""),
        response.charset_encoding,
        response.headers.get("location", ""),
        bytes(data[:limit]),
        cut=len(data) > limit,
    )


def _following(request: Request, reply: Reply) -> Request | None:
    if reply.status not in _REDIRECTS or not reply.location:
        return None
    here = parse_url(request.url)
    there = parse_url(str(here.join(reply.location)))
    same_host = (here.host, here.port) == (there.host, there.port)
    keeps_method = reply.status in (307, 308) or request.method in ("GET", "HEAD")
    if not same_host and keeps_method and (request.body or request.method not in ("GET", "HEAD")):
        return None
    return Request(
        request.method if keeps_method else "GET",
        str(there),
        request.headers if same_host else {},
        request.body if keeps_method else b"",
    )


def _canonical_host(host: str) -> str:
    """`127.0.0.1` for 2130706433, 0x7f.1 and the like, so that rules can't be dodged."""
    host = host.rstrip(".").lower()
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return host


def _cause(error: BaseException | None) -> str:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    inner = error
    while inner is not None:
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"bad certificate: {inner.verify_message.rstrip('.')}"
        if isinstance(inner, OSError) and not isinstance(inner, ssl.SSLError) and inner.errno:
            return os.strerror(inner.errno).lower()
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__
