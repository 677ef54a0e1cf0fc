"""Images that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path

from shepherd.errors import ImageError
from shepherd.images import MOST_BYTES, Image, check_count, read_image


def load_images(paths: Sequence[Path]) -> tuple[Image, ...]:
    """The images in these files; raises ImageError naming the file that is none."""
    check_count(paths)
    return tuple(load_image(path, str(path)) for path in paths)


def load_image(path: Path, name: str) -> Image:
    """The image in this file, called `name`; raises ImageError that calls it so too."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{name} can't be read: {error.strerror}") from error
    return read_image(data, name)


def described(image: Image) -> str:
    """An image in words: `photo.png (640×480, 120 kB)`."""
    width, height = image.size
    kilobytes = max(1, round(len(image.data) / 1000))
    size = f"{kilobytes} kB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"
    return f"{image.name} ({width}×{height}, {size})"
