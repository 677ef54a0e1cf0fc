"""One session of an editor: a conversation of its own, and its running turn."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp import RequestError, helpers, schema
from acp.interfaces import Client
from msgspec import Struct, field, structs

from shepherd import errors, events, messages
from shepherd.backends.base import Backend
from shepherd.cli.acp.approvals import EditorApprover, EditorStep
from shepherd.cli.acp.choices import choices_of
from shepherd.cli.acp.updates import INVALID_REQUEST, SessionUpdates, invalid
from shepherd.cli.terminal.attachments import attach_files
from shepherd.conversation.commands.table import COMMANDS, find_command, output_of
from shepherd.conversation.conversation import Conversation
from shepherd.images import Image, check_count, decode_image
from shepherd.knowledge.commands import INIT, INIT_SUMMARY
from shepherd.tools.consent import parse_arguments
from shepherd.tools.files.read import ReadImage
from shepherd.tools.permissions.approval import ApprovalRequest, Approver
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.text import one_line
from shepherd.tools.tool import FileChange
from shepherd.turn import TurnOutcome, run_turn

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


class Prompt(Struct):
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
            case schema.TextContentBlock():
                prompt.texts.append(block.text)
            case schema.ImageContentBlock():
                prompt.images.append(_image(block.data, block.uri or ""))
            case schema.ResourceContentBlock():
                prompt.texts.append(_mention(block, cwd))
            case schema.EmbeddedResourceContentBlock():
                _embed(block, prompt, cwd)
            case schema.AudioContentBlock():
                raise invalid("Shepherd can't hear audio; send text, images and files.")
    if not (prompt.text or prompt.attached or prompt.images):
        raise invalid("The prompt is empty.")
    try:
        check_count(prompt.images)
    except errors.ImageError as error:
        raise invalid(str(error)) from error
    return prompt


async def build_message(
    prompt: Prompt, conversation: Conversation, approver: Approver, backend: Backend
) -> messages.Message:
    """The message to send; mentioned files are read under the rules of the tools.

    Raises RequestError for a file that can't be read, and for an image that nothing can see.
    """
    # runners of their own, because the conversation may not offer these tools to the model
    reader = conversation.tool_runner(approver, default_registry())
    viewer = conversation.tool_runner(approver, ToolRegistry([ReadImage()]))
    attached = await attach_files(prompt.text, conversation.cwd, reader, viewer)
    if attached.problems:
        raise invalid("; ".join(attached.problems))
    images = (*prompt.images, *attached.images)
    if images and backend.info.vision is False:
        raise invalid(f"The model {backend.info.id} can't see images.")
    text = "\n\n".join(part for part in (attached.prompt, *prompt.attached) if part)
    return messages.Message.user(text, images)


def _image(data: str, uri: str) -> Image:
    """An image (base64) under the name of its file; raises RequestError."""
    path = file_path(uri)
    try:
        return decode_image(data, uri if path is None else path.name)
    except errors.ImageError as error:
        raise invalid(str(error)) from error


def _mention(block: schema.ResourceContentBlock, cwd: Path) -> str:
    """A linked file as `@path`, which is read like one that was typed; another link as text."""
    path = file_path(block.uri)
    if path is None:
        return f"[{block.name}]({block.uri})"
    name = _relative(path, cwd)
    if '"' in name or "\n" in name:  # a mention can't hold it
        return f" {name} "
    return f' @"{name}" '


def _embed(block: schema.EmbeddedResourceContentBlock, prompt: Prompt, cwd: Path) -> None:
    """Add a text or an image, which the editor sends whole, to the prompt."""
    resource = block.resource
    path = file_path(resource.uri)
    name = resource.uri if path is None else _relative(path, cwd)
    match resource:
        case schema.TextResourceContents():
            label = name.replace('"', "'").replace("\n", " ")
            prompt.attached.append(f'<file path="{label}">\n{resource.text}\n</file>')
        case schema.BlobResourceContents():
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
    """The path from the working directory; the whole path of a file elsewhere."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


_STOP_REASONS: dict[events.FinishReason, schema.StopReason] = {
    events.FinishReason.LENGTH: "max_tokens",
    events.FinishReason.CANCELLED: "cancelled",
    events.FinishReason.ERROR: "max_turn_requests",
}


class EditorSession:
    """A conversation that an editor shows; `resources` are closed with it.

    `capabilities` tell whether the editor tells the texts of its files, and whether it shows forms.
    """

    def __init__(
        self,
        conversation: Conversation,
        resources: AsyncExitStack,
        client: Client,
        updates: SessionUpdates,
        capabilities: schema.ClientCapabilities | None,
    ) -> None:
        self.conversation = conversation
        self.updates = updates
        self.choices = choices_of(conversation)
        self._resources = resources
        files = capabilities.fs if capabilities is not None else None
        forms = capabilities.elicitation if capabilities is not None else None
        has_forms = forms is not None and forms.form is not None
        self._approver = EditorApprover(client, updates, self._change_of, has_forms)
        step = EditorStep(client, updates, reads_files=bool(files and files.read_text_file))
        self._tools = conversation.tool_runner(self._approver, steps=(step,))
        self._turn: asyncio.Task[schema.PromptResponse] | None = None
        self._is_cancelled_by_editor = False
        """Whether that ended the last turn; otherwise its cancelling goes on to the program."""

    def begin_soon(self) -> None:
        """Show the notices so far and the commands, right after the answer to this request.

        An editor does not know the session before the answer.
        """
        asyncio.get_running_loop().call_soon(self.begin)

    def begin(self) -> None:
        """Show the notices and the commands: Shepherd's own, then those of the user's files."""
        self.conversation.notices.listen(self.updates.notice)
        own = [(command.name, command.summary, command.usage) for command in COMMANDS.values()]
        own.append((INIT, INIT_SUMMARY, ""))
        available = [
            _available(name, summary[:1].upper() + summary[1:], usage)
            for name, summary, usage in own
        ]
        for command in self.conversation.knowledge.commands:
            if command.name not in COMMANDS:  # the own one would run
                summary, hint = one_line(command.summary), one_line(command.hint)
                available.append(_available(command.name, summary, hint))
        self.updates.send(helpers.update_available_commands(available))

    async def _change_of(self, request: ApprovalRequest) -> FileChange | None:
        """The change that a call of Shepherd's own tools would make; None if it can't succeed."""
        tool = self._tools.registry.get(request.call.name)
        if tool is None:
            return None
        context = structs.replace(
            self._tools.context,
            grants=frozenset(request.accesses),  # as if the user had allowed the call
            denies=partial(self._tools.policy.denies, tool.name),
        )
        try:
            arguments = parse_arguments(tool, request.call)
            return await asyncio.to_thread(tool.change, arguments, context)
        except (errors.ToolError, OSError):
            return None

    def tell_choices(self) -> None:
        """Tell the editor what is chosen now, unless it knows."""
        choices = choices_of(self.conversation)
        if choices != self.choices:
            self.choices = choices
            self.updates.send(helpers.update_current_mode(self.conversation.policy.mode.value))
            self.updates.send(
                schema.ConfigOptionUpdate(
                    session_update="config_option_update", config_options=choices
                )
            )

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is being answered."""
        return self._turn is not None

    async def prompt(self, blocks: Sequence[Block]) -> schema.PromptResponse:
        """Answer a prompt; raises RequestError, and ShepherdError if the model can't answer."""
        if self._turn is not None:
            text = "This session is answering another prompt; wait for its end, or cancel it."
            raise RequestError(INVALID_REQUEST, text)
        prompt = read_blocks(blocks, self.conversation.cwd)
        self._is_cancelled_by_editor = False
        self._turn = asyncio.create_task(self._respond(prompt))
        try:
            return await self._turn
        except asyncio.CancelledError:
            if not self._is_cancelled_by_editor:  # the whole program ends
                raise
            return schema.PromptResponse(stop_reason="cancelled")
        finally:
            self._turn = None
            self.updates.end_turn()
            self.tell_choices()

    def cancel(self) -> None:
        """Stop the running turn, if there is one."""
        if self._turn is not None:
            self._is_cancelled_by_editor = True
            self._turn.cancel()

    async def aclose(self) -> None:
        """Stop the turn and close the conversation."""
        turn = self._turn  # `prompt` sets it to None at its end
        self.cancel()
        if turn is not None:
            await asyncio.wait([turn])
        await self._resources.aclose()

    async def _respond(self, prompt: Prompt) -> schema.PromptResponse:
        """Run the command that the prompt is, or let the model answer; the turn's task."""
        match = find_command(prompt.text)
        if match is not None and not (prompt.attached or prompt.images):
            command, argument = match
            self.updates.answer(await output_of(command, self.conversation, argument))
            return schema.PromptResponse(stop_reason="end_turn")
        conversation, updates = self.conversation, self.updates
        backend = await conversation.slot.live_backend()  # one that has ended is opened again
        message = await build_message(prompt, conversation, self._approver, backend)
        # MCP servers are asked for what the message names of theirs
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
        if outcome.finish_reason is events.FinishReason.ERROR:
            updates.answer(f"\n\n{updates.problem}")
        return schema.PromptResponse(
            stop_reason=_STOP_REASONS.get(outcome.finish_reason, "end_turn"), usage=_usage(outcome)
        )


def _available(name: str, description: str, hint: str) -> schema.AvailableCommand:
    """A command as the editor offers it; `hint` is shown in place of an argument, "" = no such."""
    argument = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint))
    return schema.AvailableCommand(
        name=name, description=description, input=argument if hint else None
    )


def _usage(outcome: TurnOutcome) -> schema.Usage:
    """The tokens of all answers of a turn together."""
    read = sum(stats.prompt_tokens for stats in outcome.stats)
    written = sum(stats.completion_tokens for stats in outcome.stats)
    return schema.Usage(
        total_tokens=read + written,
        input_tokens=read,
        output_tokens=written,
        cached_read_tokens=sum(stats.cached_tokens for stats in outcome.stats),
    )
