"""An editor: the package's own client, with the real program behind it."""

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import acp
from acp.client.connection import ClientSideConnection
from acp.connection import StreamEvent
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    InitializeResponse,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from tests.cli.program import Program
from tests.forked import SHEPHERD, start_forked
from tests.patience import PATIENCE

T = TypeVar("T")
LIMIT = 1 << 26


@dataclass
class Editor:
    """Records updates and requests; `answers` are the options to choose, in order.

    The answer "" is a cancelled question, None an error, and a function is called first.
    """

    answers: list[str | Callable[[], object] | None] = field(default_factory=list[Any])
    buffers: dict[str, str] = field(default_factory=dict[str, str])
    updates: list[Any] = field(default_factory=list[Any])
    requests: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(
        default_factory=list[tuple[ToolCallUpdate, list[PermissionOption]]]
    )
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: object) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.requests.append((tool_call, options))
        self.changed.set()
        answer = self.answers.pop(0)
        if callable(answer):
            answer()
            await asyncio.Event().wait()
        if answer is None:
            raise acp.RequestError.internal_error()
        if answer == "":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=cast(str, answer))
        return RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    def of(self, kind: str) -> list[Any]:
        """The updates of one kind."""
        return [update for update in self.updates if update.session_update == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        """The joined text of the answer, or of other chunks."""
        return "".join(update.content.text for update in self.of(kind))

    def calls(self) -> dict[str, list[str]]:
        """The statuses of each call, by its title."""
        titles = {start.tool_call_id: start.title for start in self.of("tool_call")}
        statuses: dict[str, list[str]] = {title: [] for title in titles.values()}
        for update in self.of("tool_call_update"):
            statuses[titles[update.tool_call_id]].append(update.status)
        return statuses


@dataclass
class Connected:
    """A connection to the program, and every message on it."""

    agent: ClientSideConnection
    process: "subprocess.Popen[bytes]"
    capabilities: InitializeResponse
    messages: list[StreamEvent]

    async def new(self, cwd: Path) -> str:
        """The id of a new session."""
        return (await self.agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id

    async def prompt(self, session: str, *blocks: Any) -> str:
        """The reason why the answer to the blocks ended; a str is a block of text."""
        prompt = [acp.text_block(b) if isinstance(b, str) else b for b in blocks]
        async with asyncio.timeout(PATIENCE):
            return (await self.agent.prompt(session_id=session, prompt=prompt)).stop_reason


@asynccontextmanager
async def connected(
    program: Program, editor: Editor, *options: str, stderr: str = ""
) -> AsyncGenerator[Connected]:
    """`shepherd OPTIONS acp`, initialized; at the end it has exited with 0 and said `stderr`."""
    pipe = subprocess.PIPE
    process: subprocess.Popen[bytes] = start_forked(
        [SHEPHERD, *options, "acp"],
        program.env,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=program.work,
    )
    loop, messages = asyncio.get_running_loop(), list[StreamEvent]()
    reader = asyncio.StreamReader(limit=LIMIT)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    agent = acp.connect_to_agent(
        cast(Client, editor),
        writer,
        reader,
        observers=[messages.append],
        use_unstable_protocol=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            files = FileSystemCapabilities(read_text_file=bool(editor.buffers))
            capabilities = await agent.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=ClientCapabilities(fs=files),
            )
        yield Connected(agent, process, capabilities, messages)
    finally:
        await agent.close()
        writing.close()
        errors = await asyncio.to_thread(_end, process)
        reading.close()
    assert (process.returncode, errors) == (0, stderr)


def _end(process: "subprocess.Popen[bytes]") -> str:
    """Wait for the program's end; returns what it wrote to stderr."""
    assert process.stderr is not None
    with process.stderr as stderr:
        errors = stderr.read().decode()
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
    return errors


async def until(editor: Editor, condition: Callable[[], T]) -> T:
    """The result of `condition` once it is true."""
    async with asyncio.timeout(PATIENCE):
        while not (result := condition()):
            editor.changed.clear()
            await editor.changed.wait()
    return result
