"""Reading an image for the user, who has mentioned it."""

from pathlib import Path

from shepherd.errors import ImageError, ToolError
from shepherd.images import MAX_IMAGE_BYTES, Image, read_image
from shepherd.tools.base import ToolContext, ToolResult
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.files.read import ReadArguments, ReadFile
from shepherd.tools.paths import resolve_path
from shepherd.tools.threads import in_thread


class ReadImage(ReadFile):
    """The image in a file, under the name and so the rules of `read_file`; for no model to call."""

    async def run(self, arguments: ReadArguments, context: ToolContext) -> ToolResult:
        path = resolve_path(arguments.path, context.cwd)
        image = await in_thread(lambda _: _read(FileAccess(context), path, arguments.path))
        return ToolResult(image.label, images=(image,))


def _read(files: FileAccess, path: Path, shown: str) -> Image:
    with file_errors(shown), files.open(path) as file:
        data = file.read(MAX_IMAGE_BYTES + 1)
    try:
        return read_image(data, shown)
    except ImageError as error:
        raise ToolError(str(error)) from error
