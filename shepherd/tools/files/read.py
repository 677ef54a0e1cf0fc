"""Reads text files, including huge ones."""

import os
from io import BytesIO
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field

from shepherd.errors import ImageError, ToolError
from shepherd.images import MAX_IMAGE_BYTES, Image, read_image
from shepherd.tasks import Stopped, in_thread
from shepherd.tools.access import READ_FILE, Access, AccessKind
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import directory_errors, file_errors
from shepherd.tools.files.textfile import HEAD_BYTES, Encoding, Slice, detect, read_slice
from shepherd.tools.paths import Origin
from shepherd.tools.text import one_line, pluralize
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult, Traits

MAX_LINES = 2000
_UTF16_LIMIT = 32 << 20


class ReadArguments(Arguments):
    """The file and the lines to read."""

    path: str
    offset: Annotated[int, Field(ge=0, description="first line")] = 1
    limit: Annotated[int, Field(ge=0)] = 0


class ReadFile(Tool[ReadArguments]):
    """The text of a file, or of a slice of its lines."""

    name = READ_FILE
    traits = Traits("read", "Read", unit="line", reads_only=True)
    description = "Read a text file."
    arguments = ReadArguments

    def accesses(self, arguments: ReadArguments, context: ToolContext) -> list[Access]:
        path = context.resolve(arguments.path)
        return [Access(AccessKind.READ, str(path))]

    def preview(self, arguments: ReadArguments, context: ToolContext) -> str:
        """Nothing more than the call says; raises ToolError if the file can't be read."""
        path = context.resolve(arguments.path)
        with file_errors(arguments.path):
            FileAccess(context).check_read(path)
        return ""

    async def run(self, arguments: ReadArguments, context: ToolContext) -> ToolResult:
        path = context.resolve(arguments.path)
        content = await in_thread(lambda stopped: _read(path, arguments, context, stopped))
        return ToolResult(content)


def _read(path: Path, arguments: ReadArguments, context: ToolContext, stopped: Stopped) -> str:
    """The lines of the file that the arguments ask for; raises ToolError for a binary one."""
    with file_errors(arguments.path), FileAccess(context).open(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        if not head:
            return "(empty file)"
        encoding = detect(head)
        # UTF-16 is converted as a whole, so a huge file would fill the memory
        if encoding is None or (encoding.codec.startswith("utf-16") and size > _UTF16_LIMIT):
            raise ToolError(f"binary file: {arguments.path} ({pluralize(size, 'byte')})")
        return _slice_text(file, encoding, arguments, context.output_bytes, stopped)


def _slice_text(
    file: BinaryIO, encoding: Encoding, arguments: ReadArguments, max_bytes: int, stopped: Stopped
) -> str:
    """The lines that the arguments ask for, and a note if the file has more."""
    if encoding.codec.startswith("utf-16"):  # its line ends are no single bytes
        text = encoding.decode(file.read())
        file, encoding = BytesIO(text.encode("utf-8", "replace")), Encoding("utf-8", "replace")
    first = max(arguments.offset, 1)  # some models count from 0
    part = read_slice(file, first, arguments.limit or MAX_LINES, max_bytes, stopped)
    if not part.data:
        raise ToolError(
            f"offset {first} is past the end: {arguments.path} has {pluralize(part.total, 'line')}"
        )
    text = part.data.decode(encoding.codec, "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").removesuffix("\n")
    note = "" if part.complete else _note(part)
    return f"{text}\n{note}" if note else text


def _note(part: Slice) -> str:
    """`[lines 1-200 of 340; read on with offset=201]`; `340+` if the rest was not counted."""
    total = f"{part.total}+" if part.uncounted else str(part.total)
    if part.cut:
        cut = f"line {part.last} cut at {len(part.data)} bytes"
        more = f"; read on with offset={part.last + 1}" if part.last < part.total else ""
        return f"[lines {part.first}-{part.last} of {total}; {cut}{more}]"
    return f"[lines {part.first}-{part.last} of {total}; read on with offset={part.last + 1}]"


class ReadImage(ReadFile):
    """Reads an image under the name and rules of `read_file`; models can't call it."""

    async def run(self, arguments: ReadArguments, context: ToolContext) -> ToolResult:
        path = context.resolve(arguments.path)
        image = await in_thread(lambda _: _image_read(FileAccess(context), path, arguments.path))
        return ToolResult(image.label, images=(image,))


def _image_read(files: FileAccess, path: Path, path_text: str) -> Image:
    """The image in a file; raises ToolError if models can't read it."""
    with file_errors(path_text), files.open(path) as file:
        data = file.read(MAX_IMAGE_BYTES + 1)  # one byte more tells an image that is too large
    try:
        return read_image(data, path_text)
    except ImageError as error:
        raise ToolError(str(error)) from error


MAX_ENTRIES = 500


class ListArguments(Arguments):
    """The directory to list."""

    path: str = "."


class ListDirectory(Tool[ListArguments]):
    """The names in a directory."""

    name = "list_directory"
    traits = Traits("read", "List", unit="entry", reads_only=True)
    description = "List a directory."
    arguments = ListArguments

    def accesses(self, arguments: ListArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.READ, str(context.resolve(arguments.path or ".")))]

    def preview(self, arguments: ListArguments, context: ToolContext) -> str:
        """Nothing more than the call says; raises ToolError if there is no such directory."""
        path = context.resolve(arguments.path or ".")
        with directory_errors(arguments.path):
            FileAccess(context).check_directory(path)
        return ""

    async def run(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        """The names, one per line, and how many more there are."""
        path = context.resolve(arguments.path or ".")
        names = await in_thread(lambda _: _names(context, path, arguments.path))
        lines = names[:MAX_ENTRIES]
        if len(names) > MAX_ENTRIES:
            rest = len(names) - MAX_ENTRIES
            lines.append(f"[{rest} more {'entry' if rest == 1 else 'entries'}]")
        return ToolResult("\n".join(lines) or "(empty)")


def _names(context: ToolContext, path: Path, path_text: str) -> list[str]:
    """The sorted names in a directory; those of directories, also by links, end with a slash."""
    with (
        directory_errors(path_text),
        FileAccess(context).open_directory(path) as directory,
        os.scandir(directory) as entries,
        context.view.use() as origin,
    ):
        result = sorted((e.name, _is_directory(e, path, origin)) for e in entries)
    return [one_line(name) + ("/" if is_dir else "") for name, is_dir in result]


def _is_directory(entry: os.DirEntry[str], parent: Path, origin: Origin) -> bool:
    """Whether an entry is a directory, or a link to one; the kernel would leave the view."""
    if not entry.is_symlink():
        return entry.is_dir()
    return origin.place(origin.resolve(parent / entry.name)).is_dir()
