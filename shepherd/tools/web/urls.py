"""URLs in the canonical form that rules are matched against and connections use."""

import ipaddress
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind

if TYPE_CHECKING:
    import httpx

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_MAX_DISPLAY = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_url(text: str) -> "httpx.URL":
    """The URL in canonical form; raises ToolError unless it is http(s) with a host.

    A host has one spelling: lower case, IDNA, addresses in decimal, no dot at its end.
    """
    import httpx

    try:
        url = httpx.URL(text.strip())
        url = url.copy_with(host=_canonical_host(url), fragment=None) if url.host else url
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"bad URL: {_display(text)} ({_display(str(error))})") from error
    if url.scheme not in _DEFAULT_PORTS or not url.host:
        raise ToolError(f"bad URL: {_display(text)} (http:// or https:// expected)")
    if url.userinfo:
        raise ToolError("bad URL: user and password do not belong there")
    if urlsplit(str(url)).hostname != url.raw_host.decode("ascii"):
        raise ToolError(f"bad URL: {_display(text)} (its host can be read in two ways)")
    return url


def network_access(url: "httpx.URL") -> Access:
    """The access that a request to the URL needs."""
    return Access(AccessKind.NETWORK, str(url))


def port_of(url: "httpx.URL") -> int:
    """The port to connect to."""
    return url.port or _DEFAULT_PORTS[url.scheme]


def origin(url: "httpx.URL") -> tuple[str, str, int]:
    """Scheme, host and port: where credentials may go."""
    return url.scheme, url.host, port_of(url)


def _canonical_host(url: "httpx.URL") -> str:
    host = url.raw_host.decode("ascii")
    if ":" in host:
        address = ipaddress.IPv6Address(host)
        if address.scope_id:
            raise ValueError("an address with a zone is not supported")
        return str(address.ipv4_mapped or address)
    host = host.rstrip(".").lower()
    if not _NAME.fullmatch(host):
        raise ValueError("not a host name")
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def _display(text: str) -> str:
    """The text on one line; invisible characters are written as escapes."""
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(visible)[:_MAX_DISPLAY]
