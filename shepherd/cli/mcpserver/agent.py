"""The conversation behind the server: its tools, and `ask`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from mcp import MCPError, types
from msgspec import Struct, field
from pydantic import Field, ValidationError

from shepherd.agents.progress import Progress, answer_of
from shepherd.cli.mcpserver.work import Context, ElicitingApprover, RunningCall
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ImageError, ShepherdError
from shepherd.images import Image, check_count
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.models import BUILTIN_TOOLS
from shepherd.tools.files.read import ReadImage
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.text import one_line
from shepherd.tools.tool import Arguments, ToolResult, compact_schema
from shepherd.turn import run_turn

ASK = "ask"

ROOTS_SECONDS = 10
"""The longest wait for the client's list of its directories."""


class AskArguments(Arguments):
    """The arguments of `ask`."""

    prompt: Annotated[str, Field(min_length=1, description="The question or the task.")]
    images: list[str] = Field(
        default_factory=list, description="Paths of images for models that can see."
    )
    fresh: Annotated[bool, Field(description="Forget the earlier questions.")] = False


class ServedAgent(Struct, eq=False):
    """The tools of a conversation that a client may call; `names` are their names.

    `ask` answers with the conversation's model, one question after the other.
    """

    conversation: Conversation
    names: tuple[str, ...]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tools(self) -> list[ToolSpec]:
        """The offered tools, in order."""
        specs = self.registry().specs()
        return [*specs, self._ask_spec()] if ASK in self.names else specs

    def registry(self) -> ToolRegistry:
        """The offered tools; no other one can be called."""
        registry = self.conversation.registry
        return ToolRegistry(tool for name in self.names if (tool := registry.get(name)) is not None)

    async def call(self, call: RunningCall) -> ToolResult:
        """The result of a call, under the rules of the conversation."""
        name, arguments = call.params.name, call.params.arguments or {}
        approver = ElicitingApprover(call.ask)
        if name == ASK and ASK in self.names:  # no tool of the registry
            return await self._answer(call, arguments, approver)
        runner = self.conversation.tool_runner(approver, self.registry())
        tool_call = ToolCall(f"mcp_{call.context.request_id}", name, arguments)
        return await runner.run(tool_call, on_event=call.on_event)

    async def _answer(
        self, call: RunningCall, arguments: Mapping[str, Any], approver: Approver
    ) -> ToolResult:
        """The result of `ask`; one question waits for the end of the other."""
        try:
            request = AskArguments.model_validate(dict(arguments))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"]))
            text = f"Error: bad arguments for {ASK}: {place}: {problem['msg']}"
            return ToolResult(text, ok=False)
        async with self._turn:  # all questions are turns of one conversation
            try:
                return await self._turn_result(call, request, approver)
            except ShepherdError as error:
                return ToolResult(f"Error: {error}", ok=False)

    async def _turn_result(
        self, call: RunningCall, request: AskArguments, approver: Approver
    ) -> ToolResult:
        """The answer of the conversation's model, after a whole turn with tools."""
        conversation = self.conversation
        if request.fresh:
            conversation.clear()
        images = await self._images(request.images, approver)
        backend = await conversation.slot.live_backend()
        label = one_line(backend.info.id)
        progress = Progress(label, call.on_event)
        tools = conversation.tool_runner(approver)
        prompt = Message.user(request.prompt, images)
        outcome = await run_turn(
            conversation.session, prompt, backend, tools, progress, conversation.limits
        )
        return answer_of(label, conversation.session, outcome.finish_reason, progress.error)

    async def _images(self, paths: list[str], approver: Approver) -> tuple[Image, ...]:
        """The images, read under the rules; raises ImageError."""
        runner = self.conversation.tool_runner(approver, ToolRegistry([ReadImage()]))
        images: list[Image] = []
        for number, path in enumerate(paths):
            result = await runner.run(ToolCall(f"image_{number}", ReadImage.name, {"path": path}))
            if not result.images:
                raise ImageError(f"{path}: {result.content.removeprefix('Error: ')}")
            images += result.images
        check_count(images)
        return tuple(images)

    def _ask_spec(self) -> ToolSpec:
        """`ask` as the client sees it."""
        model = self.conversation.config.model.label
        description = (
            f"Ask Shepherd's model ({model}), an agent with tools in this directory. It remembers "
            "earlier questions and returns its last answer."
        )
        return ToolSpec(ASK, description, compact_schema(AskArguments))


def default_names(registry: ToolRegistry) -> tuple[str, ...]:
    """Shepherd's own tools that the settings allow, and `ask`."""
    return (*(name for name in registry.names if name in BUILTIN_TOOLS), ASK)


async def root_of(context: Context, cwd: Path) -> Path:
    """The directory for tools: `cwd` if it lies in a root of the client, else the first root.

    Only clients of the older protocol have roots.
    """
    session = context.session
    capabilities = session.client_capabilities
    has_roots = capabilities is not None and capabilities.roots is not None
    if not has_roots or not session.can_send_request:
        return cwd
    try:
        listed = await session.send_request(
            types.ListRootsRequest(), types.ListRootsResult, ROOTS_SECONDS
        )
    except (MCPError, ValueError):  # a client without roots after all, or a malformed answer
        return cwd
    directories = [_directory(str(root.uri)) for root in listed.roots]
    roots = [directory for directory in directories if directory is not None]
    if not roots or any(cwd.is_relative_to(root) for root in roots):
        return cwd
    return roots[0]


def _directory(uri: str) -> Path | None:
    """The directory of a `file:` URI on this machine, if it exists."""
    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    usable = parts.scheme == "file" and parts.netloc in ("", "localhost") and path.is_absolute()
    return path.resolve() if usable and path.is_dir() else None
