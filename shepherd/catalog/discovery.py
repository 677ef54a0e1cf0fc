"""Finds keys, servers and model files on this machine, without importing heavy modules."""

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import cast
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from msgspec import Struct

from shepherd.catalog.model_files import ModelFile, model_files
from shepherd.config.provider import vendors_with_key
from shepherd.json_text import as_object, as_objects, read_json
from shepherd.messages import JsonObject

PROBE_SECONDS = 0.1
"""The time that a server on this machine has to answer."""

REMOTE_PROBE_SECONDS = 0.5
"""The time that a server on another machine, named by OLLAMA_HOST, has to answer."""

MAX_REPLY = 1_048_576
MAX_FILES = 20
LLAMA_VARIABLE, LLAMA_PORT = "LLAMA_ARG_PORT", "8080"
"""The port of llama.cpp's server: its variable, and its default."""
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


class Discovery(Struct, frozen=True):
    """A possible provider or model; `command` connects it."""

    description: str
    command: str


async def discover(
    env: Mapping[str, str], models_dir: Path, *, probe_seconds: float = PROBE_SECONDS
) -> list[Discovery]:
    """All keys, servers and model files of this machine.

    OLLAMA_HOST and LLAMA_ARG_PORT locate the servers of Ollama and llama.cpp, as for these. Each
    has `probe_seconds` to answer; a thread reads the directories meanwhile. Never raises.
    """
    ollama, llama, files = await asyncio.gather(
        _ollama(ollama_url(env), probe_seconds),
        _llama_server(env.get(LLAMA_VARIABLE) or LLAMA_PORT, probe_seconds),
        asyncio.to_thread(lambda: list(islice(model_files(env, models_dir), MAX_FILES))),
    )
    return [*_keys(env), *ollama, *llama, *_files(files)]


def _keys(env: Mapping[str, str]) -> list[Discovery]:
    """A provider for each variable that has a vendor's key."""
    discoveries: list[Discovery] = []
    for vendor, variable in vendors_with_key(env):
        command = (
            f"shepherd provider add {vendor.name} --use --type {vendor.type} --model {vendor.model}"
        )
        if vendor.base_url:
            command += f" --base-url {vendor.base_url}"
        discoveries.append(Discovery(f"a key in {variable}", command))
    return discoveries


async def _ollama(url: str, probe_seconds: float) -> list[Discovery]:
    """The Ollama server at `url` with its first model, if it answers."""
    reply = await _get(url, "/api/tags", probe_seconds)
    if not isinstance(reply.get("models"), list):
        return []
    names = [str(model["name"]) for model in as_objects(reply["models"]) if model.get("name")]
    label = "Ollama" if url == DEFAULT_URL else f"Ollama at {urlsplit(url).netloc}"
    if not names:
        command = "shepherd model pull qwen3:4b --provider ollama"
        return [Discovery(f"{label}, without models yet", command)]
    # A name that a user can copy without thinking of quotes.
    name = next((n for n in names if n.isprintable() and " " not in n), names[0])
    return [Discovery(f"{label} with {_counted(len(names))}", adding_command(url, name))]


async def _llama_server(port: str, probe_seconds: float) -> list[Discovery]:
    """The server of llama.cpp at a port of this machine, if it answers."""
    server = f"http://127.0.0.1:{port}"
    reply = await _get(server, "/props", probe_seconds)
    if "default_generation_settings" not in reply:
        return []
    command = f"shepherd provider add llama --use --type openai --base-url {server}/v1"
    return [Discovery(f"a llama.cpp server at port {port}", command)]


def _files(files: list[ModelFile]) -> list[Discovery]:
    """All model files as one discovery, with a command for the largest."""
    if not files:
        return []
    model = max(files, key=lambda file: file.size)
    command = f"shepherd --model {quote(str(model.path))}"
    return [Discovery(_counted(len(files), "model file"), command)]


def _counted(number: int, unit: str = "model") -> str:
    """Such as `1 model` or `20 or more model files`: the search ends at MAX_FILES."""
    many = f"{number} or more" if number >= MAX_FILES else str(number)
    return f"{many} {unit}{'' if number == 1 else 's'}"


async def _get(server: str, path: str, probe_seconds: float) -> JsonObject:
    """The JSON object that a server returns; {} if there is none in time."""
    try:
        if urlsplit(server).hostname not in _THIS_MACHINE:
            probe_seconds = max(probe_seconds, REMOTE_PROBE_SECONDS)
        async with asyncio.timeout(probe_seconds):
            reply = await asyncio.to_thread(_reply, server, path, probe_seconds)
        return as_object(read_json(reply))
    except (OSError, TimeoutError, ValueError, RecursionError, HTTPException):
        return {}


def _reply(server: str, path: str, seconds: float) -> bytes:
    """The body of the server's reply; each step of the connection may take so many seconds."""
    near = build_opener(ProxyHandler({}))  # what is on this machine is behind no proxy
    with near.open(f"{server}{path}", timeout=seconds) as reply:
        return cast(bytes, reply.read(MAX_REPLY))


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
    host, port_text = _split(place)
    port = int(port_text) if re.fullmatch(r"[0-9]{1,5}", port_text) else 0
    if not 0 < port < 65_536:  # none, or none that exists
        port = _PORTS.get(scheme, PORT) if is_url else PORT
    if scheme != "https":
        scheme = "http"
    return f"{scheme}://{_reachable(host)}:{port}/{path}".rstrip("/")


def adding_command(url: str, model: str) -> str:
    """The command that permanently connects the model of the Ollama server at `url`."""
    address = "" if url == DEFAULT_URL else f" --base-url {quote(url)}"
    return f"shepherd provider add ollama --use --type ollama{address} --model {quote(model)}"


def _split(place: str) -> tuple[str, str]:
    """Host and port; "" for a missing one."""
    bracketed = _BRACKETED.fullmatch(place)
    if bracketed:
        return bracketed["host"], bracketed["port"] or ""
    if place.count(":") > 1:  # an IPv6 address without brackets
        return place, ""
    host, _, port = place.partition(":")
    return host, port


def _reachable(host: str) -> str:
    """The host as a client writes it; a server's wildcard address means this machine."""
    try:
        address = ipaddress.ip_address(host or "0.0.0.0")
    except ValueError:  # a name
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{host}]" if address.version == 6 else host
