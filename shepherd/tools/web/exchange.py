"""One HTTP exchange; each redirect goes through the permission check."""

import asyncio
import os
import ssl
from typing import TYPE_CHECKING

from shepherd.errors import ToolError
from shepherd.tools.base import ToolContext
from shepherd.tools.web.addresses import resolve_host
from shepherd.tools.web.messages import Reply, Request, read_body
from shepherd.tools.web.redirects import following, permit
from shepherd.tools.web.urls import network_access, parse_url, port_of

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
_CONNECT_TIMEOUT = 15.0
_OWN_HEADERS = {"user-agent": "shepherd", "accept": "*/*", "accept-encoding": "identity"}


async def exchange(request: Request, context: ToolContext) -> Reply:
    """The reply after redirects, with at most `context.output_bytes` of its body.

    A redirect that would carry a body or credentials to another origin is returned, not
    followed. Raises ToolError.
    """
    import httpx

    context.require(network_access(parse_url(request.url)))
    ssl_context = await asyncio.to_thread(httpx.create_ssl_context)
    for _ in range(_MAX_REDIRECTS + 1):
        reply = await _exchange_once(request, context, ssl_context)
        hop = following(request, reply)
        if hop is None:
            return reply
        await permit(hop, request.url, context)
        request = hop
    raise ToolError(f"too many redirects from {parse_url(request.url).host}")


async def _exchange_once(
    request: Request, context: ToolContext, ssl_context: ssl.SSLContext
) -> Reply:
    """One request to a checked address, over a new connection.

    A reused connection or cookie of another host at the same address would undo the checks.
    """
    import httpx

    url = parse_url(request.url)
    addresses = await resolve_host(
        url.host, port_of(url), allow_private=context.allow_private_hosts
    )
    problem: Exception | None = None
    for address in addresses:
        try:
            async with httpx.AsyncClient(
                verify=ssl_context,
                trust_env=False,
                timeout=httpx.Timeout(context.timeout, connect=_CONNECT_TIMEOUT),
            ) as client:
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
        coding = response.headers.get("content-encoding", "")
        body = await read_body(response.aiter_raw(), coding, limit)
    finally:
        await response.aclose()
    return Reply(
        response.status_code,
        response.headers.get("content-type", ""),
        response.charset_encoding,
        response.headers.get("location", ""),
        body,
    )


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
