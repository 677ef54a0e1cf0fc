"""What an editor's sessions are opened with: shared models, and the editor's MCP servers."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer
from pydantic import ValidationError

from shepherd.backends.base import Backend, Concurrency
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import backend_opener
from shepherd.errors import ConfigError, ShepherdError
from shepherd.mcp.servers import Origin, Server, ServerDefinition, check_name
from shepherd.tasks import end_tasks
from shepherd.validation import problems_of

SESSIONS = Concurrency(1, maximum=8)
"""Sessions whose turns run at the same time; more wait."""


@dataclass(slots=True)
class SharedModels:
    """Opens each model on its first use; sessions with the same settings of it share it."""

    providers: ProviderBook
    _opened: dict[str, asyncio.Task[Backend]] = field(
        default_factory=dict[str, asyncio.Task[Backend]]
    )

    async def backend(self, config: Config) -> Backend:
        """The backend for these settings; raises the error that keeps it from loading.

        One that failed is opened again.
        """
        key = repr((config.model, config.llamacpp))
        task = self._opened.get(key)
        if task is None or _has_failed(task):
            if task is not None and not task.cancelled() and task.exception() is None:
                await task.result().aclose()
            open_backend = backend_opener(self.providers, SESSIONS)
            task = self._opened[key] = asyncio.ensure_future(open_backend(config))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Close all models."""
        tasks = list(self._opened.values())
        self._opened.clear()
        for task in tasks:
            if not task.done():
                await end_tasks(task)
            elif not task.cancelled() and task.exception() is None:
                await task.result().aclose()


def _has_failed(task: asyncio.Task[Backend]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or not task.result().alive


async def can_see(models: SharedModels, config: Config, seconds: float) -> bool:
    """Whether the model sees images; False if it is not loaded after `seconds`, or can't be."""
    try:
        async with asyncio.timeout(seconds):
            backend = await models.backend(config)
    except (ShepherdError, TimeoutError):
        return False
    return backend.info.vision is not False


EditorServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

EDITOR = Path("the editor")
MAX_NAME = 30


def convert_servers(servers: Iterable[EditorServer]) -> tuple[list[Server], list[str]]:
    """The servers that can be used, and a sentence for each other one.

    The user has configured them in the editor, so they need no consent. They run in the sandbox,
    with network. Their variables and headers are kept in memory only.
    """
    converted: list[Server] = []
    problems: list[str] = []
    for server in servers:
        try:
            converted.append(_convert(server))
        except (ConfigError, ValidationError) as error:
            reason = problems_of(error) if isinstance(error, ValidationError) else error
            problems.append(f"The MCP server {server.name} of the editor is not used: {reason}")
    return converted, problems


def _convert(server: EditorServer) -> Server:
    match server:
        case McpServerStdio():
            values = {
                "command": server.command,
                "args": server.args,
                "env": {variable.name: variable.value for variable in server.env},
                "network": True,
            }
        case HttpMcpServer() | SseMcpServer():
            headers = {header.name: header.value for header in server.headers}
            kind = "sse" if isinstance(server, SseMcpServer) else ""
            values = {"url": server.url, "headers": headers, "type": kind}
        case _:
            raise ConfigError("Shepherd connects to servers over stdio and HTTP only.")
    definition = ServerDefinition.model_validate(values)
    return Server(_name(server.name), definition, Origin.USER, EDITOR)


def _name(text: str) -> str:
    """The editor's name of a server as part of the names of its tools; raises ConfigError."""
    name = re.sub(r"[^a-z0-9-]+", "_", text.lower()).strip("_-")
    name = re.sub(r"^[^a-z]+", "", name)[:MAX_NAME].rstrip("_-")
    check_name(name)
    return name
