"""URLs in the canonical form that rules are matched against and connections use."""

import asyncio
import ipaddress
import re
import socket
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind

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
    # another parser, such as that of a rule or of the server, must not see another host
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
    """The one spelling of a host: `127.0.0.1` for `0x7f.1` too; raises ValueError."""
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
        return socket.inet_ntoa(socket.inet_aton(host))  # reads all forms that connecting reads
    except OSError:
        return host  # a name, not an address


def _display(text: str) -> str:
    """The text on one line; invisible characters are written as escapes."""
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(visible)[:_MAX_DISPLAY]


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_SPECIAL_V4 = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24
198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
168.63.129.16/32
"""
"""IANA's special-purpose registry and multicast; the last entry is Azure's platform address."""

_SPECIAL_V6 = """
2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20
"""
"""The entries of the same registry inside 2000::/3; the rest of IPv6 is not public."""

_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet.

    IPv4 inside IPv6 is judged as IPv4 where hosts use it: mapped, and NAT64's known prefix. The
    other embeddings (6to4, Teredo, ISATAP, compatible) are never public.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _networks(_SPECIAL_V4))
    inner = _embedded_v4(address)
    if inner is not None:
        return is_public(inner)
    is_isatap = int(address) >> 32 & 0xFFFF_FFFF in _ISATAP  # the 32 bits before those of IPv4
    special = any(address in network for network in _networks(_SPECIAL_V6))
    return address in _GLOBAL_V6 and not special and not is_isatap


def refuse_private(host: str) -> None:
    """Raise ToolError if the name alone shows that the host is not public."""
    try:
        public = is_public(ipaddress.ip_address(host))
    except ValueError:
        public = host not in _LOCAL_NAMES and not host.endswith(".localhost")
    if not public:
        raise _private(host)


async def resolve_host(host: str, port: int, *, allow_private: bool) -> list[str]:
    """All addresses of `host`, checked; connect only to one of these.

    Raises ToolError if there are none or, unless allowed, if any of them is not public.
    """
    loop = asyncio.get_running_loop()
    try:
        result = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ToolError(f"cannot reach {host}: name not known") from error
    except OSError as error:
        raise ToolError(f"cannot reach {host}: {error.strerror or error}") from error
    # an entry ends with the address of a socket, which begins with that of the host
    addresses = list(dict.fromkeys(str(socket_address[0]) for *_, socket_address in result))
    if not allow_private and not all(_is_public_text(text) for text in addresses):
        raise _private(host)
    return addresses


def _embedded_v4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this address reach, None if they stay IPv6."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


@lru_cache
def _networks(text: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(network) for network in text.split()]


def _is_public_text(text: str) -> bool:
    """Whether an address of the resolver is public; `%eth0` names the zone of a local one."""
    try:
        return is_public(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return False


def _private(host: str) -> ToolError:
    return ToolError(f"private address refused: {host}")
