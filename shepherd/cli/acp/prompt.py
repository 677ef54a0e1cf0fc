"""The blocks of a prompt as a message."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from shepherd.backends.base import Backend
from shepherd.cli.terminal.attachments import attach_files
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ImageError
from shepherd.images import Image, check_count, decode_image
from shepherd.messages import Message
from shepherd.tools.files.read import ReadImage
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.registry import ToolRegistry, default_registry

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)


def invalid(text: str) -> RequestError:
    """The error of a request that can't be used, with a sentence for the user."""
    return RequestError(-32602, text)


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
