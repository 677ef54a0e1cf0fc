"""The client's side of a server that was started as a process."""

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import anyio
from mcp.server.stdio import stdio_server


@dataclass
class Pipe:
    """The server's stdin; after its end, nothing is written."""

    stream: IO[str]

    async def write(self, text: str) -> None:
        with suppress(ValueError, BrokenPipeError):
            self.stream.write(text)

    async def flush(self) -> None:
        with suppress(ValueError, BrokenPipeError):
            self.stream.flush()


def streams(process: subprocess.Popen[str]) -> Any:
    """The client's side of the server's pipes."""
    assert process.stdin
    assert process.stdout
    writer: Any = Pipe(process.stdin)
    return stdio_server(anyio.wrap_file(process.stdout), writer)
