"""The target of a redirect, and whether it may be followed."""

from typing import TYPE_CHECKING

from shepherd.errors import ToolError
from shepherd.tools.base import ToolContext
from shepherd.tools.web.addresses import refuse_private
from shepherd.tools.web.messages import Reply, Request
from shepherd.tools.web.urls import network_access, origin, parse_url

if TYPE_CHECKING:
    import httpx

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({"GET", "HEAD"})


def following(request: Request, reply: Reply) -> Request | None:
    """The next request of a redirect; None if there is none, or if it must not be sent.

    Only a request to the same origin keeps its headers, its body, and a method other than GET or
    HEAD. A redirect from https to http is not followed if the request had headers or a body.
    Raises ToolError for a bad URL.
    """
    if reply.status not in _REDIRECTS or not reply.location:
        return None
    here = parse_url(request.url)
    there = _joined(here, reply.location)
    keeps_method = reply.status in (307, 308) or request.method in _SAFE
    same_origin = origin(here) == origin(there)
    downgrade = here.scheme == "https" and there.scheme == "http"
    if not same_origin:
        changes_something = request.body or request.method not in _SAFE
        if keeps_method and changes_something:
            return None
        if downgrade and (request.body or request.headers):
            return None
    method = request.method if keeps_method else "GET"
    headers = request.headers if same_origin else {}
    if not keeps_method:
        headers = {k: v for k, v in headers.items() if not k.startswith("content-")}
    return Request(method, str(there), headers, request.body if keeps_method else b"")


async def permit(request: Request, origin_url: str, context: ToolContext) -> None:
    """Check a redirect from `origin_url` as an access of its own.

    The approved origin needs no further approval, nor does the same host by https instead of
    http. Raises ToolError with the host's name if the rules or the user deny the access.
    """
    here, there = parse_url(origin_url), parse_url(request.url)
    access = network_access(there)
    try:
        if not context.allow_private_hosts:
            refuse_private(there.host)
        if context.denies(access):
            raise ToolError("denied by rule")
        if request.method not in _SAFE or not _is_covered(here, there):
            await context.authorize(access, f"{request.method} {there}\n(redirected from {here})")
    except ToolError as error:
        raise ToolError(f"redirect to {there.host} not followed: {error}") from error


def _is_covered(here: "httpx.URL", there: "httpx.URL") -> bool:
    upgrade = origin(here) == ("http", here.host, 80) and origin(there) == ("https", here.host, 443)
    return upgrade or origin(here) == origin(there)


def _joined(here: "httpx.URL", location: str) -> "httpx.URL":
    import httpx

    try:
        return parse_url(str(here.join(location)))
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"{here.host} redirects to a bad URL") from error
