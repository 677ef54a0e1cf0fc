"""What this machine has that could answer: keys, servers, model files. Loads nothing heavy."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias, cast

from shepherd.config.vendors import vendors_with_key

Json: TypeAlias = dict[str, object]

PROBE_SECONDS = 0.1
"""How long a server on this machine may take to say that it is there."""

LARGEST_REPLY = 1_048_576
MOST_FILES = 20
MOST_LOOKED_AT = 20_000
LEAST_BYTES = 1_048_576
"""Smaller GGUF files are vocabularies and tests."""

OLLAMA_PORT, LLAMA_PORT = 11434, 8080
_NO_MODEL = ("mmproj", "vocab")


@dataclass(frozen=True, slots=True)
class Found:
    """Something that could answer; `command` connects it."""

    what: str
    command: str


async def discover(
    env: Mapping[str, str],
    models_dir: Path,
    *,
    ports: tuple[int, int] = (OLLAMA_PORT, LLAMA_PORT),
    patience: float = PROBE_SECONDS,
) -> list[Found]:
    """Everything that is found; `ports` are Ollama's and llama.cpp's.

    Servers have `patience` seconds; directories are read in a thread meanwhile. Never raises for
    what it meets.
    """
    ollama, llama, files = await asyncio.gather(
        _ollama(ports[0], patience),
        _llama_server(ports[1], patience),
        asyncio.to_thread(lambda: list(islice(model_files(env, models_dir), MOST_FILES))),
    )
    return [*_keys(env), *ollama, *llama, *_files(files)]


def model_files(env: Mapping[str, str], models_dir: Path) -> Iterator[Path]:
    """GGUF files in the models directory and where other programs keep theirs."""
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("HF_HOME") or home / ".cache" / "huggingface") / "hub"
    places = (models_dir, cache, home / ".lmstudio" / "models", home / ".cache" / "lm-studio")
    for place in places:
        with suppress(OSError):
            yield from _below(place)


def _keys(env: Mapping[str, str]) -> list[Found]:
    return [
        Found(
            f"a key in {variable}",
            f"shepherd provider add {vendor.name} --use --type {vendor.type} --model {vendor.model}"
            + (f" --base-url {vendor.base_url}" if vendor.base_url else ""),
        )
        for vendor, variable in vendors_with_key(env)
    ]


async def _ollama(port: int, patience: float) -> list[Found]:
    reply = await _get(port, "/api/tags", patience)
    models = reply.get("models")
    if not isinstance(models, list):
        return []
    tables = [cast(Json, m) for m in cast(list[object], models) if isinstance(m, dict)]
    names = [str(table["name"]) for table in tables if table.get("name")]
    if not names:
        return [Found("Ollama, without models yet", "ollama pull qwen3:4b")]
    name = next((n for n in names if n.isprintable() and " " not in n), names[0])
    command = f"shepherd provider add ollama --use --type ollama --model {name}"
    return [Found(f"Ollama with {_counted(len(names))}", command)]


async def _llama_server(port: int, patience: float) -> list[Found]:
    reply = await _get(port, "/props", patience)
    if "default_generation_settings" not in reply:
        return []
    address = f"http://127.0.0.1:{port}/v1"
    command = f"shepherd provider add llama --use --type openai --base-url {address}"
    return [Found(f"a llama.cpp server at port {port}", command)]


def _files(files: list[Path]) -> list[Found]:
    if not files:
        return []
    largest = max(files, key=_size)
    path = str(largest)
    quoted = path if path.isprintable() and " " not in path and "'" not in path else f"'{path}'"
    return [Found(_counted(len(files), "model file"), f"shepherd --model {quoted}")]


def _below(place: Path) -> Iterator[Path]:
    for path in islice(place.rglob("*.gguf"), MOST_LOOKED_AT):
        later_part = "-of-" in path.stem and "-00001-of-" not in path.stem
        if later_part or path.name.startswith(_NO_MODEL) or _size(path) < LEAST_BYTES:
            continue
        yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _counted(number: int, unit: str = "model") -> str:
    many = f"{number} or more" if number >= MOST_FILES else str(number)
    return f"{many} {unit}{'' if number == 1 else 's'}"


async def _get(port: int, path: str, patience: float) -> Json:
    """The JSON object at a port of this machine; {} where nothing of the kind answers in time."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                request = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\n\r\n"
                writer.write(request.encode())
                reply = await _body(reader)
            finally:
                writer.close()
        found = json.loads(reply)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return {}
    return cast(Json, found) if isinstance(found, dict) else {}


async def _body(reader: asyncio.StreamReader) -> bytes:
    """What comes behind the head: as much as it says, else all to the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d{1,9})", head, re.IGNORECASE)
    if length:
        return await reader.readexactly(min(int(length[1]), LARGEST_REPLY))
    data = b""
    while len(data) < LARGEST_REPLY and (part := await reader.read(LARGEST_REPLY)):
        data += part
    return data
