"""Which addresses are nobody's business but the user's own network's."""

import asyncio
import ipaddress
import socket
from typing import TypeAlias

from shepherd.errors import ToolError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet, also one wrapped in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


async def resolve_host(host: str, port: int, *, allow_private: bool) -> list[str]:
    """All addresses of `host`, checked; connect to one of these and to nothing else.

    Raises ToolError if it has none or, unless allowed, if any of them is not public.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ToolError(f"cannot reach {host}: name not known") from error
    except OSError as error:
        raise ToolError(f"cannot reach {host}: {error.strerror or error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not allow_private and not all(_is_public_text(text) for text in addresses):
        raise ToolError(f"private address refused: {host}")
    return addresses


def _is_public_text(text: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return False
