"""Finds Ollama's address from OLLAMA_HOST, as Ollama's own programs do."""

import ipaddress
import re
from collections.abc import Mapping
from shlex import quote

VARIABLE = "OLLAMA_HOST"
PORT = 11434
DEFAULT_URL = f"http://127.0.0.1:{PORT}"
"""The default address of Ollama."""

_PORTS = {"http": 80, "https": 443}
_BRACKETED = re.compile(r"\[(?P<host>[^\]]*)\](?::(?P<port>.*))?")


def ollama_url(env: Mapping[str, str]) -> str:
    """The address in OLLAMA_HOST, `DEFAULT_URL` if it is unset; never raises.

    The variable may be a host, HOST:PORT or a URL; a URL without a port uses that of its scheme.
    Wildcard addresses (0.0.0.0) become the address of this machine.
    """
    text = env.get(VARIABLE, "").strip(" \t\r\n\"'")
    scheme, is_url, rest = text.partition("://")
    scheme, rest = (scheme.lower(), rest) if is_url else ("http", text)
    place, _, path = rest.partition("/")
    host, port = _split(place)
    number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else -1
    if not 0 < number < 65_536:
        number = _PORTS.get(scheme, PORT) if is_url else PORT
    scheme = "https" if scheme == "https" else "http"
    return f"{scheme}://{_reachable(host)}:{number}/{path}".rstrip("/")


def adding_command(url: str, model: str) -> str:
    """The command that permanently connects the model of the Ollama server at `url`."""
    address = "" if url == DEFAULT_URL else f" --base-url {quote(url)}"
    return f"shepherd provider add ollama --use --type ollama{address} --model {quote(model)}"


def _split(place: str) -> tuple[str, str]:
    """Host and port; "" for a missing one."""
    bracketed = _BRACKETED.fullmatch(place)
    if bracketed:
        return bracketed["host"], bracketed["port"] or ""
    if place.count(":") > 1:
        return place, ""
    host, _, port = place.partition(":")
    return host, port


def _reachable(host: str) -> str:
    try:
        address = ipaddress.ip_address(host or "0.0.0.0")
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{host}]" if address.version == 6 else host
