"""The images that a model is shown now, and the error of a model that reads only text."""

from collections.abc import Iterator, Sequence

from shepherd.errors import ImageError
from shepherd.images import Image
from shepherd.messages import Message, Role


def shown_now(messages: Sequence[Message]) -> Iterator[Image]:
    """The images since the last answer; a model has seen those before it already."""
    for message in reversed(messages):
        if message.role is Role.ASSISTANT:
            return
        yield from message.images


def cannot_see(model: str) -> ImageError:
    """The error for images that are shown to a model that reads only text."""
    return ImageError(
        f"{model} can't see images. Leave them out, or ask a model that can: "
        "`shepherd provider add` connects one."
    )


def refuse_images(messages: Sequence[Message], model: str) -> None:
    """Raise ImageError if a model that reads only text is shown an image now."""
    for _ in shown_now(messages):
        raise cannot_see(model)
