"""The MCP server: Shepherd's tools and what plugins add, over stdin and stdout or over HTTP.

The SDK serves the prompts, the resources and the completion of plugins. Its handlers of tools are
replaced, because each call of a tool goes through the rules of the conversation.
"""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import anyio
from mcp import MCPError, types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver import MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent
from msgspec import Struct, field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd import errors, messages
from shepherd.cli.commands.output import warn
from shepherd.cli.mcpserver.agent import ASK, ServedAgent, default_names, root_of
from shepherd.cli.mcpserver.work import ANSWER_SECONDS, Calls, Context, session_id
from shepherd.cli.terminal.lines import read_lines, take_streams
from shepherd.config import provider_book, settings
from shepherd.conversation.build import backend_opener, build_conversation, unsaved
from shepherd.conversation.session_start import SessionStart
from shepherd.json_text import as_object
from shepherd.plugins import Group, Plugins
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.registry import traits_of
from shepherd.tools.tool import ToolResult
from shepherd.version import __version__

INSTRUCTIONS = (
    "Tools of Shepherd, an agent with its own model. They work in one directory under the user's "
    "rules; a call that needs approval is shown to the user or denied."
)


class McpService(Struct, eq=False):
    """One connection to a client, or all those over HTTP, which share a conversation.

    `read` returns the settings for a directory. `names` are the chosen tools, none for the default.
    `at_roots` tells whether the client was asked for its directory, or never is.
    """

    read: Callable[[Path], settings.Config]
    cwd: Path
    names: Sequence[str] = ()
    at_roots: bool = False
    _calls: Calls = field(default_factory=Calls)
    _agent: ServedAgent | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def server(self) -> MCPServer[Any]:
        """The server with what plugins add to it, after `open`."""
        bus = Bus()
        served = MCPServer[Any](
            "shepherd",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="ERROR",
            subscriptions=bus,
            middleware=[_check_discover],
            # the SDK binds a state to its call; users may take as long as `Calls` waits
            request_state_security=RequestStateSecurity.ephemeral(ttl=ANSWER_SECONDS),
        )
        config = self.read(self.cwd)
        plugins = Plugins(config.plugins.disabled, config.plugins.settings)
        plugins.use(Group.MCP, lambda add: add(served), warn)
        handlers = handlers_of(served)
        added_call = handlers.get_request_handler("tools/call")
        assert added_call is not None

        async def added() -> list[types.Tool]:
            """The tools of plugins that are offered."""
            tools = await served.list_tools()
            return [tool for tool in tools if not self.names or tool.name in self.names]

        async def list_tools(
            context: Context, _params: types.PaginatedRequestParams
        ) -> types.ListToolsResult:
            agent = await self._agent_of(context)
            return types.ListToolsResult(tools=[*map(_tool, agent.tools()), *await added()])

        async def call(context: Context, params: types.CallToolRequestParams) -> HandlerResult:
            agent, name = await self._agent_of(context), params.name
            is_own = name in [tool.name for tool in agent.tools()]
            if is_own or name not in [tool.name for tool in await added()]:
                result = await self._calls.run(context, params, agent.call)
                return _result(result) if isinstance(result, ToolResult) else result
            access = Access(AccessKind.TOOL, name)
            if agent.conversation.policy.decide(name, [access]).decision is Decision.ALLOW:
                return await added_call.handler(context, params)
            reason = f"Error: denied: no rule allows it, such as `allow tool {name}`"
            return _result(ToolResult(reason, ok=False))

        add: Any = handlers.add_request_handler
        add("tools/list", types.PaginatedRequestParams, list_tools)
        add("tools/call", types.CallToolRequestParams, call)
        add("logging/setLevel", types.SetLevelRequestParams, self._calls.set_level)
        add("resources/subscribe", types.SubscribeRequestParams, bus.follow)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, bus.leave)
        return served

    def open(self) -> None:
        """Open the conversation in the working directory; raises ShepherdError."""
        self._agent = self._opened(self.cwd)

    async def aclose(self) -> None:
        """Stop the calls and close the conversation."""
        await self._calls.aclose()
        await self._close()

    async def _agent_of(self, context: Context) -> ServedAgent:
        """The agent in the client's directory; the first request asks the client for that."""
        async with self._opening:  # of two first requests, one opens it
            root = self.cwd if self.at_roots else await root_of(context, self.cwd)
            if self._agent is None or root != self.cwd:
                await self._close()
                self._agent, self.cwd = self._opened(root), root
            self.at_roots = True
            return self._agent

    async def _close(self) -> None:
        """Close the conversation, if one is open."""
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.conversation.aclose()

    def _opened(self, cwd: Path) -> ServedAgent:
        """The agent in a directory; raises ConfigError, UsageError."""
        config = without_servers(unsaved(self.read(cwd)))
        book = provider_book.ProviderBook.from_env(os.environ)
        conversation = build_conversation(
            config, os.environ, cwd, SessionStart(), backend_opener(book), book
        )
        conversation.notices.listen(warn)
        registry = conversation.registry
        for name in self.names:
            if name != ASK and registry.get(name) is None:
                known = ", ".join([*registry.names, ASK])
                raise errors.UsageError(f"--tools: there is no tool {name!r}; there are {known}.")
        return ServedAgent(conversation, tuple(self.names) or default_names(registry))


async def _check_discover(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuse `server/discover` without a version; the SDK takes it for the older protocol's."""
    has_version = types.PROTOCOL_VERSION_META_KEY in (ctx.meta or {})
    if ctx.method == "server/discover" and not has_version:
        text = f"server/discover needs {types.PROTOCOL_VERSION_META_KEY} in _meta"
        raise MCPError(types.INVALID_PARAMS, text)
    return await call_next(ctx)


def handlers_of(served: MCPServer[Any]) -> Server[Any]:
    """The SDK's table of handlers, which has no public way to it."""
    return served._lowlevel_server  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as said


class Bus(InMemorySubscriptionBus):
    """Tells clients of the older protocol of changed resources, too."""

    def __init__(self) -> None:
        super().__init__()
        self._followers: dict[tuple[str, str], ServerSession] = {}

    async def publish(self, event: ServerEvent) -> None:
        """Tell all who follow."""
        await super().publish(event)
        for (_, uri), session in [*self._followers.items()]:
            if event == ResourceUpdated(uri):
                await session.send_resource_updated(uri)

    async def follow(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Answer `resources/subscribe`."""
        self._followers[session_id(context), params.uri] = context.session
        return types.EmptyResult()

    async def leave(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Answer `resources/unsubscribe`."""
        self._followers.pop((session_id(context), params.uri), None)
        return types.EmptyResult()


async def serve_stdio(service: McpService) -> int:
    """Serve one client on stdin and stdout until it closes stdin; raises ShepherdError."""
    service.open()
    server = handlers_of(service.server())
    try:
        async with protocol_streams() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await service.aclose()
    return 0


TOKEN_VARIABLE = "SHEPHERD_MCP_TOKEN"
"""In the environment, the token that clients need over HTTP; if it is empty, they need none."""


class _WithToken(Struct, frozen=True):
    """An application of ASGI that answers nobody without the token."""

    app: ASGIApp
    token: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        sent = dict(scope["headers"]).get(b"authorization", b"")
        if self.token and not secrets.compare_digest(sent, b"Bearer " + self.token.encode()):
            text = f"a token is needed: the server has printed it, or has it by {TOKEN_VARIABLE}"
            refusal = PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)


async def serve_http(service: McpService, port: int) -> int:
    """Serve clients of this machine over HTTP until a signal; raises ShepherdError.

    The SDK refuses other hosts and origins, unknown sessions and wrong versions. Other accounts of
    the machine lack the token, which is new with each start unless the environment has one.
    """
    import uvicorn

    from shepherd.server.listen import bind
    from shepherd.server.settings import ServerSettings

    service.open()
    try:
        with bind(ServerSettings(host="127.0.0.1", port=port)) as listening:
            served = service.server()
            token = os.environ.get(TOKEN_VARIABLE, secrets.token_urlsafe())
            app = _WithToken(served.streamable_http_app(), token)
            # the SDK's tasks end with the block, whatever ends it
            options: Any = {"lifespan": "off", "ws": "none", "log_config": None}
            http = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=2, **options))
            listening.listen()  # so that a client that reads the next line can connect
            address = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            header = f"Authorization: Bearer {token}" if token else "no token"
            warn(f"serving MCP at {address} for clients with {header}")
            async with served.session_manager.run():
                await http.serve([listening])
    finally:
        await service.aclose()
    return 0


def without_servers(config: settings.Config) -> settings.Config:
    """The settings without MCP servers, of which this process may be one."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"enabled": False})})


def _tool(spec: messages.ToolSpec) -> types.Tool:
    """A tool as the client lists it, with hints of whether it only reads."""
    reads = traits_of(spec.name).reads_only
    annotations = types.ToolAnnotations(read_only_hint=reads, open_world_hint=not reads)
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema={"type": "object", **spec.parameters},
        annotations=annotations,
    )


def _result(result: ToolResult) -> types.CallToolResult:
    """A result for the client: its text, then its images."""
    content: list[types.ContentBlock] = [types.TextContent(text=result.content)]
    content += [
        types.ImageContent(data=image.base64, mime_type=image.media_type) for image in result.images
    ]
    return types.CallToolResult(content=content, is_error=not result.ok)


MAX_MESSAGE_BYTES = 64 << 20
"""Maximum length of one message; a longer one ends the connection."""

LAST_SECONDS = 10.0
"""The longest wait for the answers to open requests after the end of stdin."""


class OpenRequests(Struct):
    """The ids of the client's requests that have no answer yet."""

    ids: set[str] = field(default_factory=set[str])
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)

    def received(self, line: str) -> None:
        """Note a message of the client: a request, or the end of one by cancelling."""
        message = _object(line)
        if message.get("method") == "notifications/cancelled":
            params: object = message.get("params")
            if isinstance(params, dict):
                self._note_answer(cast(dict[str, Any], params).get("requestId"))
        elif "method" in message and "id" in message:
            self.ids.add(json.dumps(message["id"]))

    def sent(self, line: str) -> None:
        """Note a message to the client, which may be an answer."""
        message = _object(line)
        if "method" not in message:
            self._note_answer(message.get("id"))

    async def answered(self) -> None:
        """Wait until no request is open, up to LAST_SECONDS."""
        if self.ids:
            self.all_answered.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_answered.wait(), LAST_SECONDS)

    def _note_answer(self, id: object) -> None:
        """Note that a request has its answer; ids are kept as JSON, because 1 is not "1"."""
        self.ids.discard(json.dumps(id))
        if not self.ids:
            self.all_answered.set()


async def _messages(
    lines: asyncio.Queue[bytes | None], requests: OpenRequests
) -> AsyncGenerator[str]:
    """The client's messages; at their end it waits for the answers to open requests.

    The SDK drops the answers under way when its input ends.
    """
    while (data := await lines.get()) is not None:
        line = data.decode("utf-8", "replace")
        requests.received(line)
        yield line
    await requests.answered()


class Wire:
    """The output, which notes the answers."""

    def __init__(self, file: IO[str], requests: OpenRequests) -> None:
        self._file = anyio.wrap_file(file)
        self._requests = requests
        self._last_message = ""

    async def write(self, text: str) -> None:
        """Write one message."""
        await self._file.write(text)
        self._last_message = text

    async def flush(self) -> None:
        """Send what was written."""
        await self._file.flush()
        self._requests.sent(self._last_message)


@asynccontextmanager
async def protocol_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of the SDK's server; see `take_streams`."""
    if sys.stdin.isatty():
        warn("waiting for an MCP client on stdin; Ctrl+C stops.")
    source, target = take_streams()
    requests = OpenRequests()
    with os.fdopen(target, "w", encoding="utf-8") as file:
        lines: Any = _messages(read_lines(source, MAX_MESSAGE_BYTES), requests)
        wire: Any = Wire(file, requests)
        async with stdio_server(lines, wire) as streams:
            yield streams


def _object(line: str) -> dict[str, Any]:
    """The message; empty if it is not an object, which the SDK reports."""
    try:
        return as_object(json.loads(line))
    except (ValueError, RecursionError):
        return {}
