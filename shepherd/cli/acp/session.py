"""One session of an editor: a conversation of its own, and its running turn."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.helpers import text_block, update_agent_message, update_available_commands
from acp.interfaces import Client
from acp.schema import (
    AudioContentBlock,
    AvailableCommand,
    AvailableCommandInput,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    PromptResponse,
    ResourceContentBlock,
    SessionMode,
    SessionModeState,
    StopReason,
    TextContentBlock,
    TextResourceContents,
    UnstructuredCommandInput,
    Usage,
)

from shepherd.backends.base import Backend
from shepherd.cli.acp.approvals import EditorApprover, EditorStep
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.cli.terminal.attachments import attach_files
from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.present import MODE_TEXT
from shepherd.conversation.commands.table import (
    COMMANDS,
    ConversationCommand,
    find_command,
    output_of,
)
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ImageError
from shepherd.events import FinishReason
from shepherd.images import Image, check_count, decode_image
from shepherd.knowledge.commands import INIT, INIT_SUMMARY
from shepherd.messages import Message
from shepherd.tools.files.read import ReadImage
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.text import one_line
from shepherd.turn import TurnOutcome, run_turn

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)


INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32602, -32603


def invalid(text: str) -> RequestError:
    """The error of a request that can't be used, with a sentence for the user."""
    return RequestError(INVALID_PARAMS, text)


@dataclass(slots=True)
class Prompt:
    """The parts of a prompt: its text with mentions of files, attached texts, and images."""

    texts: list[str] = field(default_factory=list[str])
    attached: list[str] = field(default_factory=list[str])
    images: list[Image] = field(default_factory=list[Image])

    @property
    def text(self) -> str:
        """The user's own text."""
        return "".join(self.texts).strip()


def read_blocks(blocks: Sequence[Block], cwd: Path) -> Prompt:
    """The parts of a prompt; raises RequestError for a block that can't be used."""
    prompt = Prompt()
    for block in blocks:
        match block:
            case TextContentBlock():
                prompt.texts.append(block.text)
            case ImageContentBlock():
                prompt.images.append(_image(block.data, block.uri or ""))
            case ResourceContentBlock():
                prompt.texts.append(_mention(block, cwd))
            case EmbeddedResourceContentBlock():
                _embed(block, prompt, cwd)
            case AudioContentBlock():
                raise invalid("Shepherd can't hear audio; send text, images and files.")
    if not (prompt.text or prompt.attached or prompt.images):
        raise invalid("The prompt is empty.")
    try:
        check_count(prompt.images)
    except ImageError as error:
        raise invalid(str(error)) from error
    return prompt


async def build_message(
    prompt: Prompt, conversation: Conversation, approver: Approver, backend: Backend
) -> Message:
    """The message to send; mentioned files are read under the rules of the tools.

    Raises RequestError for a file that can't be read, and for an image that nothing can see.
    """
    reader, viewer = (
        conversation.tool_runner(approver, registry)
        for registry in (default_registry(), ToolRegistry([ReadImage()]))
    )
    attached = await attach_files(prompt.text, conversation.cwd, reader, viewer)
    if attached.problems:
        raise invalid("; ".join(attached.problems))
    images = (*prompt.images, *attached.images)
    if images and backend.info.vision is False:
        raise invalid(f"The model {backend.info.id} can't see images.")
    text = "\n\n".join(part for part in (attached.prompt, *prompt.attached) if part)
    return Message.user(text, images)


def _image(data: str, name: str) -> Image:
    try:
        return decode_image(data, _name_of(name))
    except ImageError as error:
        raise invalid(str(error)) from error


def _mention(block: ResourceContentBlock, cwd: Path) -> str:
    """A linked file as `@path`, which is read like one that was typed; another link as text."""
    path = file_path(block.uri)
    if path is None:
        return f"[{block.name}]({block.uri})"
    name = _relative(path, cwd)
    return f' @"{name}" ' if '"' not in name and "\n" not in name else f" {name} "


def _embed(block: EmbeddedResourceContentBlock, prompt: Prompt, cwd: Path) -> None:
    resource = block.resource
    path = file_path(resource.uri)
    name = resource.uri if path is None else _relative(path, cwd)
    match resource:
        case TextResourceContents():
            label = name.replace('"', "'").replace("\n", " ")
            prompt.attached.append(f'<file path="{label}">\n{resource.text}\n</file>')
        case BlobResourceContents():
            if not (resource.mime_type or "").startswith("image/"):
                raise invalid(f"{name} is not text or an image; Shepherd can't read it here.")
            prompt.images.append(_image(resource.blob, name))


def file_path(uri: str) -> Path | None:
    """The path of a `file:` URI, None for another one."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return Path(unquote(parts.path))


def _relative(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _name_of(uri: str) -> str:
    path = file_path(uri)
    return uri if path is None else path.name


_STOP_REASONS: dict[FinishReason, StopReason] = {
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.ERROR: "max_turn_requests",
}


@dataclass(frozen=True, slots=True)
class EditorAbilities:
    """The parts of the protocol that an editor has."""

    reads: bool = False
    forms: bool = False


class EditorSession:
    """A conversation that an editor shows; `resources` are closed with it.

    `abilities` tell whether the editor knows its unsaved files, and whether it can show forms.
    """

    def __init__(
        self,
        conversation: Conversation,
        resources: AsyncExitStack,
        client: Client,
        updates: SessionUpdates,
        *,
        abilities: EditorAbilities,
    ) -> None:
        self.conversation = conversation
        self.updates = updates
        self._resources = resources
        self._approver = EditorApprover(client, updates, has_forms=abilities.forms)
        self._step = EditorStep(client, updates, abilities.reads)
        self._tools = conversation.tool_runner(self._approver)
        self._tools.steps = (*self._tools.steps, self._step)
        self._approver.runner = self._tools
        self._turn: asyncio.Task[PromptResponse] | None = None
        self._cancelled = False

    def begin_soon(self) -> None:
        """Show the notices so far and the commands, right after the answer to this request.

        An editor does not know the session before the answer.
        """
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self.conversation.notices.listen(self.updates.notice)
        knowledge = self.conversation.knowledge
        own = [_available(c.name, _sentence(c.summary), c.usage) for c in COMMANDS.values()]
        own.append(_available(INIT, _sentence(INIT_SUMMARY), ""))
        custom = [
            _available(c.name, one_line(c.summary), one_line(c.hint))
            for c in knowledge.commands
            if c.name not in COMMANDS
        ]
        self.updates.send(update_available_commands([*own, *custom]))

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is being answered."""
        return self._turn is not None

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Answer a prompt; raises RequestError, and ShepherdError if the model can't answer."""
        if self._turn is not None:
            text = "This session is answering another prompt; wait for its end, or cancel it."
            raise RequestError(INVALID_REQUEST, text)
        prompt = read_blocks(blocks, self.conversation.cwd)
        self._cancelled = False
        self._turn = asyncio.create_task(self._respond(prompt))
        try:
            return await self._turn
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return PromptResponse(stop_reason="cancelled")
        finally:
            self._turn = None
            self.updates.end_turn()

    def cancel(self) -> None:
        """Stop the running turn, if there is one."""
        if self._turn is not None:
            self._cancelled = True
            self._turn.cancel()

    async def aclose(self) -> None:
        """Stop the turn and close the conversation."""
        turn = self._turn
        self.cancel()
        if turn is not None:
            await asyncio.wait([turn])
        await self._resources.aclose()

    async def _respond(self, prompt: Prompt) -> PromptResponse:
        command = find_command(prompt.text)
        if command is not None and not (prompt.attached or prompt.images):
            return await self._run_command(*command)
        conversation, updates = self.conversation, self.updates
        backend = await conversation.live_backend()
        message = await build_message(prompt, conversation, self._approver, backend)
        backend, message = await conversation.prepare(message)
        updates.end_turn()  # calls that read attached files, and questions about servers
        outcome = await run_turn(
            conversation.session,
            message,
            backend,
            self._tools,
            updates.receive,
            conversation.limits,
        )
        return self._response(outcome)

    async def _run_command(self, command: ConversationCommand, argument: str) -> PromptResponse:
        text = await output_of(command, self.conversation, argument)
        self.updates.send(update_agent_message(text_block(text)))
        return PromptResponse(stop_reason="end_turn")

    def _response(self, outcome: TurnOutcome) -> PromptResponse:
        if outcome.finish_reason is FinishReason.ERROR:
            self.updates.send(update_agent_message(text_block(f"\n\n{self.updates.problem}")))
        return PromptResponse(
            stop_reason=_STOP_REASONS.get(outcome.finish_reason, "end_turn"),
            usage=_usage(outcome),
        )


def _sentence(summary: str) -> str:
    return f"{summary[:1].upper()}{summary[1:]}"


def _available(name: str, description: str, hint: str) -> AvailableCommand:
    text = AvailableCommandInput(UnstructuredCommandInput(hint=hint))
    return AvailableCommand(name=name, description=description, input=text if hint else None)


def _usage(outcome: TurnOutcome) -> Usage:
    read = sum(stats.prompt_tokens for stats in outcome.stats)
    written = sum(stats.completion_tokens for stats in outcome.stats)
    return Usage(
        total_tokens=read + written,
        input_tokens=read,
        output_tokens=written,
        cached_read_tokens=sum(stats.cached_tokens for stats in outcome.stats),
    )


def mode_state(conversation: Conversation) -> SessionModeState:
    """All modes, and the current one."""
    modes = [
        SessionMode(id=mode.value, name=mode.value.capitalize(), description=MODE_TEXT[mode])
        for mode in ApproveMode
    ]
    return SessionModeState(current_mode_id=conversation.policy.mode.value, available_modes=modes)
