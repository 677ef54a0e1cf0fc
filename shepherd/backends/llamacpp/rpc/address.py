"""Addresses of RPC workers: `HOST:PORT`, or `[IPv6]:PORT`."""

import ipaddress
import re
from dataclasses import dataclass

from shepherd.errors import ConfigError

DEFAULT_PORT = 50052
"""The port of llama.cpp's own `rpc-server`."""

MAX_WORKERS = 16

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+)(?::(\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """The host and the port of a worker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address of a worker, by default with llama.cpp's port; raises ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    port = DEFAULT_PORT if match is None or match[2] is None else int(match[2])
    if match is None or not 0 < port < 65536:
        raise ConfigError(
            f"llamacpp.rpc_servers: {text!r} is not an address. Write HOST:PORT, "
            f"such as 192.168.1.20:{DEFAULT_PORT}."
        )
    return Address(match[1].strip("[]").lower(), port)


def parse_addresses(texts: list[str]) -> tuple[Address, ...]:
    """The addresses of all workers; raises ConfigError for a wrong or repeated one."""
    addresses = tuple(map(parse_address, texts))
    if len(addresses) > MAX_WORKERS:
        raise ConfigError(f"llamacpp.rpc_servers: at most {MAX_WORKERS} workers share a model.")
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise ConfigError(f"llamacpp.rpc_servers: {address} is there twice.")
    return addresses


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
