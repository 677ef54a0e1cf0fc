"""One server over its whole life: connect, watch, restart with a growing delay, give up."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec import Struct
from pydantic import ValidationError

from shepherd.errors import ConfigError, ToolError
from shepherd.mcp.questions import Questions
from shepherd.mcp.servers import ServerState, ServerStatus
from shepherd.tasks import end_tasks, first_error
from shepherd.version import __version__

MAX_TOOLS = 500
MAX_PROMPTS = 200
MAX_RESOURCES = 1000
"""The maximum numbers of one server; the rest is left out, with a notice."""
_MAX_PAGES = 50

T = TypeVar("T")


class Catalogue(Struct, frozen=True):
    """What one server offers; `notes` are sentences about what is left out."""

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    resources: tuple[types.Resource, ...] = ()
    templates: tuple[types.ResourceTemplate, ...] = ()
    notes: tuple[str, ...] = ()


class _Page(Protocol):
    next_cursor: str | None


P = TypeVar("P", bound=_Page)


async def read_catalogue(client: Client, patterns: list[str]) -> Catalogue:
    """List everything; `patterns` choose the tools, and none chooses all."""
    able, notes = client.server_capabilities, list[str]()
    tools, prompts = list[types.Tool](), list[types.Prompt]()
    resources, templates = list[types.Resource](), list[types.ResourceTemplate]()
    if able.tools is not None:
        tools = await _all(client.list_tools, lambda p: p.tools, "tools", MAX_TOOLS, notes)
    if able.prompts is not None:
        prompts = await _all(
            client.list_prompts, lambda p: p.prompts, "prompts", MAX_PROMPTS, notes
        )
    if able.resources is not None:
        resources = await _all(
            client.list_resources, lambda p: p.resources, "resources", MAX_RESOURCES, notes
        )
        templates = await _all(
            client.list_resource_templates,
            lambda p: p.resource_templates,
            "templates of resources",
            MAX_RESOURCES,
            notes,
        )
    chosen = [t for t in tools if not patterns or any(fnmatchcase(t.name, p) for p in patterns)]
    return Catalogue(
        tuple(chosen), tuple(prompts), tuple(resources), tuple(templates), tuple(notes)
    )


async def _all(
    fetch: Callable[..., Awaitable[P]],
    items: Callable[[P], list[T]],
    noun: str,
    limit: int,
    notes: list[str],
) -> list[T]:
    """The items of all pages; `notes` gets a sentence if there are more than `limit`."""
    result: list[T] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        result += items(page)
        cursor = page.next_cursor
        if cursor is None or len(result) > limit:
            break
    if cursor is not None or len(result) > limit:
        notes.append(f"offers more than {limit} {noun}; the rest is left out.")
    return result[:limit]


# the SDK's type of the second stream is private
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]

MAX_RESTARTS = 5
"""Failures in a row after which a server is given up."""
STABLE_SECONDS = 60.0
"""A server that ran for so long starts again with the first delay."""
MAX_DELAY = 30.0
_FIRST_DELAY = 0.5
_RELOAD_SECONDS = 1.0
"""The least time between two readings of a changed catalogue."""
_WAIT_SECONDS = 10.0
_ENDED_SESSION = ("Session terminated", "Server returned an error response")
"""The SDK's messages for a session that the server does not know any more, or is down."""
_CHANGING = (ServerState.STARTING, ServerState.RESTARTING)

_Failure = (MCPError, ValidationError, RuntimeError, TimeoutError, OSError, ConfigError)


class Link(Struct, frozen=True):
    """An open connection: `closed` is set at its end, and `problem` says why."""

    streams: AbstractAsyncContextManager[Streams]
    closed: asyncio.Event
    problem: Callable[[], str]


class Host(Struct, frozen=True):
    """What a connection reports to, and what answers the server's own requests."""

    warn: Callable[[str], None]
    changed: Callable[[], None]
    questions: Questions
    secrets: Callable[[], Mapping[str, str]]
    roots: tuple[str, ...] = ()


class OtherTransportError(Exception):
    """The server speaks another transport, with which the next attempt begins."""


class Connection:
    """Keeps one server running; `link` opens a connection to it.

    The catalogue stays while the server is started again, so that the prompt stays the same.
    """

    def __init__(
        self,
        status: ServerStatus,
        link: Callable[[], AbstractAsyncContextManager[Link]],
        host: Host,
    ) -> None:
        self.server = status.server
        self._status = status
        self.catalogue = Catalogue()
        self.instructions = ""
        self.questions = host.questions
        self.secrets = host.secrets
        self._link = link
        self._host = host
        self._client: Client | None = None
        self._link_closed: asyncio.Event | None = None
        self._settled = asyncio.Event()
        """The first attempt has succeeded or failed."""
        self._news = asyncio.Event()
        """The state is another one since `client` began to wait."""
        self._relist = asyncio.Event()
        """The server has changed what it offers."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background, and go on until `stop`."""
        if self._task is None or self._task.done():
            self._status.state, self._status.problem = ServerState.STARTING, ""
            self._settled.clear()
            self._task = asyncio.create_task(self._supervise(), name=f"mcp {self.server.name}")

    async def stop(self) -> None:
        """Disconnect; the process has ended afterwards."""
        if self._task is not None:
            await end_tasks(self._task)
            self._task = None
        self._status.state = ServerState.OFF
        self._announce()
        self._offer(Catalogue())

    async def settled(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        await self._settled.wait()

    async def client(self) -> Client:
        """The client of a server that is ready; waits a little for a restart.

        Raises ToolError with text for the model.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_WAIT_SECONDS, self.server.definition.start_timeout)):
                while self._client is None and self._status.state in _CHANGING:
                    self._news.clear()
                    await self._news.wait()
        if self._client is None:
            reason = f": {self._status.problem}" if self._status.problem else ""
            raise ToolError(f"the MCP server {self.server.name} is {self._status.state}{reason}")
        return self._client

    def note_failure(self, error: MCPError) -> None:
        """Connect again if a server that speaks HTTP has ended the session."""
        if self._link_closed is not None and error.message in _ENDED_SESSION:
            self._link_closed.set()

    async def _supervise(self) -> None:
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            self._status.problem = ""
            try:
                self._status.problem = await self._attend()
            except OtherTransportError:
                continue
            except ConfigError as error:
                self._give_up(str(error))
                return
            except BaseExceptionGroup as group:
                if group.split(asyncio.CancelledError)[0] is not None:
                    raise
                self._status.problem = self._status.problem or _reason(first_error(group))
            except Exception as error:  # noqa: BLE001 - also a defect must not end it silently
                self._status.problem = self._status.problem or _reason(error)
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if lived > STABLE_SECONDS else failures + 1
            if failures > MAX_RESTARTS:
                self._give_up(
                    f"{self._status.problem}. `/mcp reconnect {self.server.name}` tries again"
                )
                return
            if failures == 1:
                self._host.warn(f"ended: {self._status.problem}; it is started again.")
            self._status.state = ServerState.RESTARTING
            self._announce()
            await asyncio.sleep(min(_FIRST_DELAY * 2 ** (failures - 1), MAX_DELAY))

    def _give_up(self, problem: str) -> None:
        self._status.state, self._status.problem = ServerState.FAILED, problem
        self._offer(Catalogue())
        self._announce()
        self._host.warn(f"is not running: {problem}.")

    async def _attend(self) -> str:
        """Connect, and stay until the connection ends; returns why it ended."""
        seconds = self.server.definition.start_timeout
        async with self._link() as link:
            self._link_closed = link.closed
            try:
                async with asyncio.timeout(seconds) as start, self._new_client(link) as client:
                    await self._read(client)
                    start.reschedule(None)
                    self._client, self._status.state = client, ServerState.READY
                    self._announce()
                    try:
                        await self._watch(client, link)
                    finally:
                        self._client, self._status.state = None, ServerState.RESTARTING
            except TimeoutError:
                self._status.problem = f"it did not answer within {seconds:g} s"
                raise
            except Exception:
                self._status.problem = link.problem()
                raise
            return link.problem() or "its connection was closed"

    def _new_client(self, link: Link) -> Client:
        definition = self.server.definition
        return Client(
            link.streams,
            read_timeout_seconds=max(definition.timeout, definition.start_timeout),
            client_info=types.Implementation(name="shepherd", version=__version__),
            message_handler=self._receive,
            elicitation_callback=self.questions.elicit,
            sampling_callback=self.questions.sample,
            list_roots_callback=self._roots,
            cache=None,
        )

    async def _roots(self, context: object) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root.model_validate({"uri": uri}) for uri in self._host.roots]
        )

    async def _receive(self, message: IncomingMessage) -> None:
        changes = (
            types.ToolListChangedNotification,
            types.PromptListChangedNotification,
            types.ResourceListChangedNotification,
        )
        if isinstance(message, changes):
            self._relist.set()

    async def _watch(self, client: Client, link: Link) -> None:
        """Read the catalogue again when it has changed, until the connection closes."""
        tasks = [asyncio.create_task(self._reread(client)), asyncio.create_task(self._hear(client))]
        try:
            await link.closed.wait()
        finally:
            await end_tasks(*tasks)

    async def _reread(self, client: Client) -> None:
        while True:
            await self._relist.wait()
            self._relist.clear()
            with suppress(*_Failure):
                await self._read(client)
            await asyncio.sleep(_RELOAD_SECONDS)

    async def _hear(self, client: Client) -> None:
        """Listen for changes on newer connections; older ones send them by themselves."""
        with suppress(ListenNotSupportedError, SubscriptionLost, *_Failure):
            async with client.listen(
                tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                async for _ in events:
                    self._relist.set()

    async def _read(self, client: Client) -> None:
        catalogue = await read_catalogue(client, self.server.definition.tools)
        self.instructions = client.instructions or ""
        for note in catalogue.notes:
            if note not in self.catalogue.notes:
                self._host.warn(note)
        self._offer(catalogue)

    def _announce(self) -> None:
        """Wake the tasks that wait for another state."""
        self._settled.set()
        self._news.set()

    def _offer(self, catalogue: Catalogue) -> None:
        if catalogue != self.catalogue:
            self.catalogue = catalogue
            self._host.changed()


def _reason(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "its answer is not valid"
    return str(error) or type(error).__name__
