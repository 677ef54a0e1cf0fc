"""`@path` in a message: the file is attached, under the same rules as when the model reads it.

Text goes into the message, an image beside it.
"""

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from shepherd import errors, messages, validation
from shepherd.images import SUFFIXES, Image, check_count, load_image
from shepherd.turn import ToolExecutor


def load_images(paths: Sequence[Path]) -> tuple[Image, ...]:
    """The images in these files; raises ImageError with the name of a file that is not an image."""
    check_count(paths)
    return tuple(load_image(path, str(path)) for path in paths)


def described(image: Image) -> str:
    """A description of an image: `photo.png (640×480, 120 kB)`."""
    width, height = image.size
    kilobytes = max(1, round(len(image.data) / 1000))
    size = f"{kilobytes} kB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"
    return f"{image.name} ({width}×{height}, {size})"


_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
MAX_COMPARED = 2000
"""Names of a directory that are compared with a mistyped one."""
_PUNCTUATION = ".,;:!?)]}'\""


class Attached(Struct):
    """A message with its attachments, and the failed ones."""

    prompt: str
    paths: list[str] = field(default_factory=list[str])
    images: list[Image] = field(default_factory=list[Image])
    problems: list[str] = field(default_factory=list[str])

    @property
    def message(self) -> messages.Message:
        """The message to send."""
        return messages.Message.user(self.prompt, tuple(self.images))


def mentioned_paths(text: str, cwd: Path) -> list[str]:
    """The existing paths after an @, each once; an @ before other text is ordinary text."""
    paths: dict[str, None] = {}  # as a set that keeps the order
    for quoted, bare in _MENTION.findall(text):  # one of both is ""
        # `see @notes.txt.` means the file without the last dot, unless a file has that name
        for candidate in (quoted or bare, bare.rstrip(_PUNCTUATION)):
            if candidate and _exists(cwd, candidate):
                paths[candidate] = None
                break
    return list(paths)


def missing_paths(text: str, cwd: Path) -> dict[str, str]:
    """What looks like a mistyped path after an @, each with the most similar path or "".

    Words without a dot or a slash count only if there is a similar path.
    """
    missing: dict[str, str] = {}
    for quoted, bare in _MENTION.findall(text):
        name = quoted or bare.rstrip(_PUNCTUATION)
        # a file may have a name that ends in punctuation
        if not name or _exists(cwd, name) or _exists(cwd, bare):
            continue
        similar = _similar(cwd, name)
        # an @ before a plain word, as in `@alice`, need not mean a file
        if similar or quoted or "/" in name:
            missing[name] = similar
    return missing


def _similar(cwd: Path, path: str) -> str:
    """The entry of the directory whose name is most like the one of `path`, or ""."""
    directory, slash, name = path.rpartition("/")
    root_or_cwd = "/" if slash else "."
    try:
        with os.scandir(resolved(cwd, directory or root_or_cwd)) as entries:
            names = [entry.name for entry in islice(entries, MAX_COMPARED)]
    except (OSError, ValueError):
        return ""
    neighbour = validation.nearest(name, names)
    return f"{directory}{slash}{neighbour}" if neighbour else ""


async def attach_files(text: str, cwd: Path, tools: ToolExecutor, viewer: ToolExecutor) -> Attached:
    """Read the files in the message through the tools, under their rules and limits.

    `viewer` has a `read_file` that returns images.
    """
    attached = Attached(text)
    prompt_parts = [text]
    for number, path in enumerate(mentioned_paths(text, cwd), start=1):
        is_directory = resolved(cwd, path).is_dir()
        is_image = not is_directory and _named_as_image(path)
        tool_name = "list_directory" if is_directory else "read_file"
        reader = viewer if is_image else tools
        call = messages.ToolCall(f"attach_{number}", tool_name, {"path": path})
        result = await reader.run(call)
        if result.ok and result.images:
            attached.images += result.images
        elif result.ok:
            attached.paths.append(path)
            tag = "directory" if is_directory else "file"
            prompt_parts.append(f'<{tag} path="{path}">\n{result.content}\n</{tag}>')
        else:
            attached.problems.append(f"@{path}: {result.content.removeprefix('Error: ')}")
    attached.prompt = "\n\n".join(prompt_parts)
    try:
        check_count(attached.images)
    except errors.ImageError as error:
        attached.problems.append(str(error))
    return attached


def mentioned_images(text: str, cwd: Path) -> tuple[Image, ...]:
    """The images in the message, read for the user, whatever the tools may read.

    Raises ImageError for a file with an image's name that is not an image.
    """
    paths = [path for path in mentioned_paths(text, cwd) if _named_as_image(path)]
    paths = [path for path in paths if resolved(cwd, path).is_file()]
    check_count(paths)  # before any of them is read
    return tuple(load_image(resolved(cwd, path), path) for path in paths)


_ATTACHMENT = re.compile(r'\n\n<(file|directory) path="([^"\n]+)">\n.*?\n</\1>', re.DOTALL)
_NOTES = re.compile(r"(?:\n\n<note>\n(?:(?!\n</note>).)*\n</note>)+\Z", re.DOTALL)


def without_attachments(prompt: str) -> str:
    """The message as it was typed, without files and notes for the model."""
    without_notes = _NOTES.sub("", prompt)
    return _ATTACHMENT.sub("", without_notes)


def _named_as_image(path: str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def resolved(cwd: Path, path: str) -> Path:
    """A path as the user means it: in `cwd`, absolute, or below `~`."""
    try:
        return cwd / Path(path).expanduser()
    except RuntimeError:  # `~name` of an unknown user may be the name of a file
        return cwd / path


def _exists(cwd: Path, path: str) -> bool:
    """Whether there is such a file; False for what no file can be called."""
    try:
        return resolved(cwd, path).exists()
    except (OSError, ValueError):  # such as a name that is too long, or one with a NUL
        return False
