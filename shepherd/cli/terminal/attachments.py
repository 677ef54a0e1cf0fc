"""`@path` in a message: the file goes along, read as the model itself would have to read it.

Text goes into the message, an image beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.errors import ImageError
from shepherd.images import SUFFIXES, Image, check_count, load_image
from shepherd.messages import Message, ToolCall
from shepherd.turn import ToolExecutor


def load_images(paths: Sequence[Path]) -> tuple[Image, ...]:
    """The images in these files; raises ImageError naming the file that is none."""
    check_count(paths)
    return tuple(load_image(path, str(path)) for path in paths)


def described(image: Image) -> str:
    """An image in words: `photo.png (640×480, 120 kB)`."""
    width, height = image.size
    kilobytes = max(1, round(len(image.data) / 1000))
    size = f"{kilobytes} kB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"
    return f"{image.name} ({width}×{height}, {size})"


_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
_PUNCTUATION = ".,;:!?)]}'\""


@dataclass(slots=True)
class Attached:
    """A message with what was attached to it, and what could not be."""

    prompt: str
    paths: list[str] = field(default_factory=list[str])
    images: list[Image] = field(default_factory=list[Image])
    problems: list[str] = field(default_factory=list[str])

    @property
    def message(self) -> Message:
        """What is sent."""
        return Message.user(self.prompt, tuple(self.images))


def mentioned_paths(text: str, cwd: Path) -> list[str]:
    """The paths behind an @ that exist, each once; an @ before anything else is just text."""
    paths: dict[str, None] = {}
    for quoted, bare in _MENTION.findall(text):
        for candidate in (quoted or bare, bare.rstrip(_PUNCTUATION)):
            if candidate and _exists(cwd, candidate):
                paths[candidate] = None
                break
    return list(paths)


async def attach_files(text: str, cwd: Path, tools: ToolExecutor, viewer: ToolExecutor) -> Attached:
    """Read what the message mentions through the tools, under their rules and caps.

    `viewer` has a `read_file` that gives images.
    """
    attached = Attached(text)
    parts = [text]
    for number, path in enumerate(mentioned_paths(text, cwd), start=1):
        is_directory = _resolve(cwd, path).is_dir()
        is_image = not is_directory and _named_as_image(path)
        name = "list_directory" if is_directory else "read_file"
        reader = viewer if is_image else tools
        result = await reader.run(ToolCall(f"attach_{number}", name, {"path": path}))
        if result.ok and result.images:
            attached.images += result.images
        elif result.ok:
            attached.paths.append(path)
            tag = "directory" if is_directory else "file"
            parts.append(f'<{tag} path="{path}">\n{result.content}\n</{tag}>')
        else:
            attached.problems.append(f"@{path}: {result.content.removeprefix('Error: ')}")
    attached.prompt = "\n\n".join(parts)
    try:
        check_count(attached.images)
    except ImageError as error:
        attached.problems.append(str(error))
    return attached


def mentioned_images(text: str, cwd: Path) -> tuple[Image, ...]:
    """The images that the message mentions, read for the user alone, whatever tools may read.

    Raises ImageError for a file that is named as an image and is none.
    """
    paths = [path for path in mentioned_paths(text, cwd) if _named_as_image(path)]
    files = {path: file for path in paths if (file := _resolve(cwd, path)).is_file()}
    check_count(list(files))
    return tuple(load_image(file, path) for path, file in files.items())


_ATTACHMENT = re.compile(r'\n\n<(file|directory) path="([^"\n]+)">\n.*?\n</\1>', re.DOTALL)


def without_attachments(prompt: str) -> str:
    """The message as it was typed."""
    return _ATTACHMENT.sub("", prompt)


def _named_as_image(path: str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def _resolve(cwd: Path, path: str) -> Path:
    try:
        return cwd / Path(path).expanduser()
    except RuntimeError:  # ~nobody
        return cwd / path


def _exists(cwd: Path, path: str) -> bool:
    try:
        return _resolve(cwd, path).exists()
    except (OSError, ValueError):
        return False
