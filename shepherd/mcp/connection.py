"""One server over its whole life: connect, watch, restart with a growing delay, give up."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from fnmatch import fnmatchcase
from typing import Any

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


class Catalogue(Struct, frozen=True):
    """What one server offers; `notes` are sentences about what is left out."""

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    resources: tuple[types.Resource, ...] = ()
    notes: tuple[str, ...] = ()


async def read_catalogue(client: Client, patterns: list[str]) -> Catalogue:
    """List everything; `patterns` choose the tools, and none chooses all."""
    notes: list[str] = []
    tools: list[types.Tool] = await _all(client, "tools", MAX_TOOLS, notes)
    prompts = await _all(client, "prompts", MAX_PROMPTS, notes)
    resources = await _all(client, "resources", MAX_RESOURCES, notes)
    if patterns:
        tools = [tool for tool in tools if any(fnmatchcase(tool.name, p) for p in patterns)]
    return Catalogue(tuple(tools), tuple(prompts), tuple(resources), tuple(notes))


async def _all(client: Client, kind: str, limit: int, notes: list[str]) -> list[Any]:
    """The items of a kind on all pages; `notes` gets a sentence if there are more than `limit`.

    The SDK names a capability, a method and the field of a page by the kind: `tools` and
    `list_tools`, say.
    """
    result: list[Any] = []
    if getattr(client.server_capabilities, kind) is None:
        return result  # without the capability it may answer with an error
    cursor: str | None = None
    for _ in range(_MAX_PAGES):  # a server whose pages never end must not keep us
        page = await getattr(client, f"list_{kind}")(cursor=cursor)
        result += getattr(page, kind)
        cursor = page.next_cursor
        if cursor is None or len(result) > limit:
            break
    if cursor is not None or len(result) > limit:
        notes.append(f"offers more than {limit} {kind}; the rest is left out.")
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
        # what the server offers, and says of itself
        self.catalogue = Catalogue()
        self.instructions = ""
        self.questions = host.questions
        self.secrets = host.secrets
        self._open_link = link
        self._host = host
        # of the last connection; the client is None while there is no connection
        self._client: Client | None = None
        self._link: Link | None = None
        self._first_attempt_ended = asyncio.Event()
        self._state_changed = asyncio.Event()
        """The state is another one since `client` began to wait."""
        self._offer_changed = asyncio.Event()
        """The server has changed what it offers."""
        self._supervisor: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background, and go on until `stop`."""
        if self._supervisor is None or self._supervisor.done():
            self._status.state, self._status.problem = ServerState.STARTING, ""
            self._first_attempt_ended.clear()
            name = f"mcp {self.server.name}"
            self._supervisor = asyncio.create_task(self._supervise(), name=name)

    async def stop(self) -> None:
        """Disconnect; the process has ended afterwards."""
        if self._supervisor is not None:
            await end_tasks(self._supervisor)
            self._supervisor = None
        self._status.state = ServerState.OFF
        self._wake_waiting()
        self._use_catalogue(Catalogue())

    async def settled(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        await self._first_attempt_ended.wait()

    async def client(self) -> Client:
        """The client of a server that is ready; waits a little for a restart.

        Raises ToolError with text for the model.
        """
        seconds = min(_WAIT_SECONDS, self.server.definition.start_timeout)
        with suppress(TimeoutError):  # it is not ready then, which the error below tells
            async with asyncio.timeout(seconds):
                while self._client is None and self._status.state in _CHANGING:
                    self._state_changed.clear()
                    await self._state_changed.wait()
        if self._client is None:
            reason = f": {self._status.problem}" if self._status.problem else ""
            raise ToolError(f"the MCP server {self.server.name} is {self._status.state}{reason}")
        return self._client

    def reason(self, error: MCPError) -> str:
        """Why a call failed; connects again if a server that speaks HTTP has ended the session."""
        if self._link is None:
            return str(error)
        if error.message in _ENDED_SESSION:
            self._link.closed.set()
        return self._link.problem() if error.code == types.CONNECTION_CLOSED else str(error)

    async def _supervise(self) -> None:
        """The connection's task: connect again and again, until too many attempts fail in a row.

        `stop` cancels it.
        """
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            began_at = clock()
            self._status.problem = ""
            try:
                self._status.problem = await self._attend()
            except OtherTransportError:  # no failure: the next attempt uses the other one
                continue
            except ConfigError as error:  # the next attempt would fail in the same way
                self._give_up(str(error))
                return
            except BaseExceptionGroup as group:
                if group.split(asyncio.CancelledError)[0] is not None:  # `stop` was called
                    raise
                self._status.problem = self._status.problem or _reason(first_error(group))
            except Exception as error:  # noqa: BLE001 - also a defect must not end it silently
                self._status.problem = self._status.problem or _reason(error)
            failures = 1 if clock() - began_at > STABLE_SECONDS else failures + 1
            if failures > MAX_RESTARTS:
                advice = f"`/mcp reconnect {self.server.name}` tries again"
                self._give_up(f"{self._status.problem}. {advice}")
                return
            if failures == 1:  # one warning for all attempts
                self._host.warn(f"ended: {self._status.problem}; it is started again.")
            self._status.state = ServerState.RESTARTING
            self._wake_waiting()
            await asyncio.sleep(min(_FIRST_DELAY * 2 ** (failures - 1), MAX_DELAY))

    def _give_up(self, problem: str) -> None:
        """Leave the server as failed, without its offer; the user may connect it again."""
        self._status.state, self._status.problem = ServerState.FAILED, problem
        self._use_catalogue(Catalogue())
        self._wake_waiting()
        self._host.warn(f"is not running: {problem}.")

    async def _attend(self) -> str:
        """Connect, and stay until the connection ends; returns why it ended."""
        seconds = self.server.definition.start_timeout
        async with self._open_link() as link:
            self._link = link
            try:
                async with asyncio.timeout(seconds) as start, self._new_client(link) as client:
                    await self._read_catalogue(client)
                    start.reschedule(None)  # only the start has a time limit
                    self._client, self._status.state = client, ServerState.READY
                    self._wake_waiting()
                    try:
                        await self._watch(client, link)
                    finally:  # whether it is started again is decided by `_supervise`
                        self._client, self._status.state = None, ServerState.RESTARTING
            except TimeoutError:
                self._status.problem = f"it did not answer within {seconds:g} s"
                raise
            except Exception:
                self._status.problem = link.problem()
                raise
            return link.problem() or "its connection was closed"

    def _new_client(self, link: Link) -> Client:
        """The SDK's client, which lets the server ask for what we can answer."""
        definition = self.server.definition
        return Client(
            link.streams,
            # calls and the start have limits of their own, which are more exact
            read_timeout_seconds=max(definition.timeout, definition.start_timeout),
            client_info=types.Implementation(name="shepherd", version=__version__),
            message_handler=self._receive,
            elicitation_callback=self.questions.elicit,
            sampling_callback=self.questions.sample,
            list_roots_callback=self._list_roots,
            cache=None,
        )

    async def _list_roots(self, context: object) -> types.ListRootsResult:
        """The directories that the server may work in."""
        roots = [types.Root.model_validate({"uri": uri}) for uri in self._host.roots]
        return types.ListRootsResult(roots=roots)

    async def _receive(self, message: IncomingMessage) -> None:
        """Note that the server offers something else; other messages say nothing to us."""
        changes = (
            types.ToolListChangedNotification,
            types.PromptListChangedNotification,
            types.ResourceListChangedNotification,
        )
        if isinstance(message, changes):
            self._offer_changed.set()

    async def _watch(self, client: Client, link: Link) -> None:
        """Read the catalogue again when it has changed, until the connection closes."""
        tasks = [
            asyncio.create_task(self._follow_offer(client)),
            asyncio.create_task(self._listen_for_changes(client)),
        ]
        try:
            await link.closed.wait()
        finally:
            await end_tasks(*tasks)

    async def _follow_offer(self, client: Client) -> None:
        """Read the catalogue after each change, until the task is cancelled."""
        while True:
            await self._offer_changed.wait()
            self._offer_changed.clear()
            with suppress(*_Failure):  # the last catalogue stays; a lost connection ends by itself
                await self._read_catalogue(client)
            await asyncio.sleep(_RELOAD_SECONDS)

    async def _listen_for_changes(self, client: Client) -> None:
        """Listen for changes on newer connections; older ones send them by themselves."""
        with suppress(ListenNotSupportedError, SubscriptionLost, *_Failure):
            async with client.listen(
                tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                async for _ in events:
                    self._offer_changed.set()

    async def _read_catalogue(self, client: Client) -> None:
        """Read what the server offers now; what is left out is told once."""
        catalogue = await read_catalogue(client, self.server.definition.tools)
        self.instructions = client.instructions or ""
        for note in catalogue.notes:
            if note not in self.catalogue.notes:
                self._host.warn(note)
        self._use_catalogue(catalogue)

    def _wake_waiting(self) -> None:
        """Wake the tasks that wait for another state."""
        self._first_attempt_ended.set()
        self._state_changed.set()

    def _use_catalogue(self, catalogue: Catalogue) -> None:
        """Offer this; an equal offer is no news, so that nothing is read again for it."""
        if catalogue != self.catalogue:
            self.catalogue = catalogue
            self._host.changed()


def _reason(error: BaseException) -> str:
    """Why a connection failed, for the user."""
    if isinstance(error, ValidationError):
        return "its answer is not valid"
    return str(error) or type(error).__name__
