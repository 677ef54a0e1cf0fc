"""What an editor's sessions begin with: shared models, the editor's MCP servers, saved messages."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from acp import helpers, schema
from msgspec import Struct, field
from pydantic import ValidationError

from shepherd import errors, validation
from shepherd.backends.base import Backend, Concurrency
from shepherd.cli.acp.updates import SessionUpdates, invalid
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.config import provider_book, settings
from shepherd.conversation.build import backend_opener
from shepherd.conversation.model_slot import BackendOpener
from shepherd.mcp.servers import Origin, Server, ServerDefinition, check_name
from shepherd.messages import Message, Role
from shepherd.tasks import end_tasks
from shepherd.tools.deferred import open_call
from shepherd.tools.text import valid_text
from shepherd.transcript import SessionStore, SessionSummary

SESSIONS = Concurrency(1, maximum=8)
"""Sessions whose turns run at the same time; more wait."""


class SharedModels(Struct):
    """Opens each model on its first use; sessions with the same settings of it share it."""

    providers: provider_book.ProviderBook
    opener: Callable[[provider_book.ProviderBook, Concurrency], BackendOpener] = backend_opener
    _opened: dict[str, asyncio.Task[Backend]] = field(
        default_factory=dict[str, asyncio.Task[Backend]]
    )

    async def backend(self, config: settings.Config) -> Backend:
        """The backend for these settings; raises the error that keeps it from loading.

        One that failed is opened again.
        """
        key = repr((config.model, config.llamacpp))
        task = self._opened.get(key)
        opened = _opened_backend(task) if task else None
        if opened is not None and not opened.alive:
            await opened.aclose()
            opened = None
        # a task that is done without a backend has failed, or its backend has
        if task is None or (task.done() and opened is None):
            open_backend = self.opener(self.providers, SESSIONS)
            task = self._opened[key] = asyncio.ensure_future(open_backend(config))
        return await asyncio.shield(task)  # the model goes on loading for other sessions

    async def aclose(self) -> None:
        """Close all models."""
        tasks = list(self._opened.values())
        self._opened.clear()
        for task in tasks:
            opened = _opened_backend(task)
            if opened is not None:
                await opened.aclose()
            else:
                await end_tasks(task)


def _opened_backend(task: asyncio.Task[Backend]) -> Backend | None:
    """The result of a task that has opened a backend; None while it does, or if it failed."""
    has_opened = task.done() and not task.cancelled() and task.exception() is None
    return task.result() if has_opened else None


async def can_see(models: SharedModels, config: settings.Config, seconds: float) -> bool:
    """Whether the model sees images; False if it is not loaded after `seconds`, or can't be."""
    try:
        async with asyncio.timeout(seconds):
            backend = await models.backend(config)
    except (errors.ShepherdError, TimeoutError):
        return False
    return backend.info.vision is not False


EditorServer = (
    schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
)

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
        except (errors.ConfigError, ValidationError) as error:
            reason = validation.problems_of(error) if isinstance(error, ValidationError) else error
            problems.append(f"The MCP server {server.name} of the editor is not used: {reason}")
    return converted, problems


def _convert(server: EditorServer) -> Server:
    """A server of the editor as one of the user; raises ConfigError or ValidationError."""
    match server:
        case schema.McpServerStdio():
            values = {
                "command": server.command,
                "args": server.args,
                "env": {variable.name: variable.value for variable in server.env},
                "network": True,
            }
        case schema.HttpMcpServer() | schema.SseMcpServer():
            headers = {header.name: header.value for header in server.headers}
            kind = "sse" if isinstance(server, schema.SseMcpServer) else ""
            values = {"url": server.url, "headers": headers, "type": kind}
        case _:
            raise errors.ConfigError("Shepherd connects to servers over stdio and HTTP only.")
    definition = ServerDefinition.model_validate(values)
    return Server(_name(server.name), definition, Origin.USER, EDITOR)


def _name(text: str) -> str:
    """The editor's name of a server as part of the names of its tools; raises ConfigError."""
    name = re.sub(r"[^a-z0-9-]+", "_", text.lower()).strip("_-")
    name = re.sub(r"^[^a-z]+", "", name)[:MAX_NAME].rstrip("_-")
    check_name(name)
    return name


PAGE = 50
MAX_TITLE = 100


def list_page(
    store: SessionStore, cwd: str | None, cursor: str | None
) -> schema.ListSessionsResponse:
    """The sessions of `cwd`, or all, after the `cursor`; raises RequestError for a wrong cursor.

    Sessions without a message, and damaged ones, are left out.
    """
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise invalid("The cursor is not one of session/list.")
    start = int(cursor or 0)
    # one more than a page has shows whether another one follows
    page = list(islice(_summaries(store, cwd), start, start + PAGE + 1))
    return schema.ListSessionsResponse(
        sessions=[
            schema.SessionInfo(
                session_id=summary.id,
                cwd=valid_text(summary.cwd),
                title=valid_text(summary.title[:MAX_TITLE]) or None,
                updated_at=summary.updated.isoformat(timespec="seconds"),
            )
            for summary in page[:PAGE]
        ],
        next_cursor=str(start + PAGE) if len(page) > PAGE else None,
    )


def _summaries(store: SessionStore, cwd: str | None) -> Iterator[SessionSummary]:
    """The sessions of a directory, or all of them (None), the newest first."""
    if cwd is None:
        yield from store.summaries()[0]
        return
    for session_id in store.session_ids(Path(cwd)):
        try:
            summary = store.summary(session_id)
        except errors.SessionError:  # `shepherd sessions list` shows it, with its error
            continue
        if summary.messages:
            yield summary


def replay(messages: Iterable[Message], updates: SessionUpdates) -> None:
    """Send all messages in their order; calls come with their results."""
    for message in messages:
        match message.role:
            case Role.USER if not message.is_hint:
                for image in message.images:
                    block = helpers.image_block(image.base64, image.media_type)
                    updates.send(helpers.update_user_message(block))
                if message.content:
                    updates.user_message(without_attachments(message.content))
            case Role.ASSISTANT:
                if message.reasoning:
                    updates.thought(message.reasoning)
                if message.content:
                    updates.answer(message.content)
                for call in map(open_call, message.tool_calls):
                    updates.call_started(call)
            case Role.TOOL:
                updates.call_ended(message.tool_call_id, message.content)
            case _:
                pass
    updates.end_turn()
